"""Everything that can go wrong, as one tree.

MassGenError
  ConfigError
  UsageError
  ProviderError
    AuthenticationFailed
    OutOfCredit
    ModelNotFound
    BadRequest
    ContextOverflow
    ReplyRefused
    ReplyEmpty
    ReplyMalformed
    ProviderTrouble
      RateLimited
      Overloaded
      ProviderTimeout
      ProviderUnavailable
  WorkspaceError
    OutsideWorkspace
  StoreError
    RunNotFound
    RunHeld
    RunFinal
    CorruptRun
      UnknownSchema
    StoreFull
  IllegalEvent

The class says what went wrong, the message which: what is wrong, what is valid, what to do next.
"""

from massgen_mcp.messages import Usage


class MassGenError(Exception):
    """What this program raises for a reason it can name."""


class ConfigError(MassGenError):
    """A configuration file, setting or team that cannot be used as written."""


class UsageError(MassGenError):
    """A request that cannot be met as asked: wrong argument, wrong moment, wrong place."""


class ProviderError(MassGenError):
    """A model call that brought no usable reply.

    `usage` and `model` are what its provider told of a reply that was made and paid for all the same.
    """

    usage: Usage | None = None
    model: str | None = None


class AuthenticationFailed(ProviderError):
    """The provider does not accept the key, or the key may not use the model (401, 403)."""


class OutOfCredit(ProviderError):
    """The account has no credit or no quota left; waiting does not help (402)."""


class ModelNotFound(ProviderError):
    """The provider does not know the model or the endpoint (404)."""


class BadRequest(ProviderError):
    """The provider does not accept the request as it stands (400, 422)."""


class ContextOverflow(ProviderError):
    """The request is longer than the model can read."""


class ReplyRefused(ProviderError):
    """The provider or the model declined to answer."""


class ReplyEmpty(ProviderError):
    """The reply ended as usual and says nothing."""


class ReplyMalformed(ProviderError):
    """The reply is not in the dialect that was asked for."""


class ProviderTrouble(ProviderError):
    """Passing trouble on the provider's side: nobody's fault here, worth another try.

    `retry_after` is the wait in seconds that the provider asked for, if it did; `is_unreachable`
    says that no connection came about.
    """

    def __init__(
        self, message: str, *, retry_after: float | None = None, is_unreachable: bool = False
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.is_unreachable = is_unreachable


class RateLimited(ProviderTrouble):
    """Too many requests or tokens for now (429)."""


class Overloaded(ProviderTrouble):
    """The provider has too much to do (503, 529)."""


class ProviderTimeout(ProviderTrouble):
    """No reply within the time of one call (408 and our own limit)."""


class ProviderUnavailable(ProviderTrouble):
    """The provider fails or cannot be reached (5xx, dropped connection)."""


class WorkspaceError(MassGenError):
    """A workspace, a snapshot or a check that could not be made."""


class OutsideWorkspace(WorkspaceError):
    """A path that leads out of the folder it must stay in."""


class StoreError(MassGenError):
    """The place where runs live cannot do what was asked of it."""


class RunNotFound(StoreError):
    """No run has this id, or more than one begins like it."""


class RunHeld(StoreError):
    """Another process works on the run now."""


class RunFinal(StoreError):
    """The run has ended; nothing more will happen in it."""


class CorruptRun(StoreError):
    """A file of the run cannot be read back."""


class UnknownSchema(CorruptRun):
    """A file was written by a later version of this program."""


class StoreFull(StoreError):
    """The disk takes no more: full, read-only or failing."""


class IllegalEvent(MassGenError):
    """An event that the run's state does not allow: a fault in this program, not in the world."""
