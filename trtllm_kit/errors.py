"""Every way the kit can refuse, with a stable code and an exit code.

A ``KitError`` prints as three lines: what failed (with the value), why (with the numbers compared),
and ``try:`` one command or one key to change; names from files are escaped, so that each stays one line. The tree::

    KitError
    ├── UsageError                  KIT-USAGE-001    2   the command line
    │   ├── ProfileError            KIT-PROFILE-001  2   a deploy profile is wrong (all problems at once)
    │   ├── ProfileNotFound         KIT-PROFILE-002  2
    │   └── UnknownHardware         KIT-HARDWARE-001 2
    ├── AnswerIsNo                                   1   it ran, and the answer is no
    │   ├── PlanRefused             KIT-PLAN-001     1   the plan has ERROR findings
    │   ├── PlanDrift               KIT-PLAN-002     1   an artifact was made for another plan
    │   ├── NoToolchain             KIT-BUILD-002    1   no toolchain of that name for that release
    │   ├── OutdatedServer          KIT-SERVE-006    1   a server runs on what the repository held before
    │   ├── EditedFiles             KIT-ARTIFACT-005 1   a person changed files that would be written again
    │   └── QualityGateFailed       KIT-CHECKPOINT-005 1
    └── CannotDo                                     3   environment, input files, I/O, internal
        ├── ModelNotFound           KIT-MODEL-001
        ├── ModelConfigError        KIT-MODEL-002
        ├── UnknownArchitecture     KIT-MODEL-003
        ├── HubUnavailable          KIT-MODEL-004
        ├── WeightFileError         KIT-CHECKPOINT-001
        ├── WeightIndexError        KIT-CHECKPOINT-002
        ├── TensorError             KIT-CHECKPOINT-003
        ├── CalibrationError        KIT-CHECKPOINT-004
        ├── FormatNotMade           KIT-CHECKPOINT-006
        ├── NotComparable           KIT-CHECKPOINT-007
        ├── WorkerFailed            KIT-CHECKPOINT-008
        ├── BuildFailed             KIT-BUILD-001
        ├── RepositoryError         KIT-REPOSITORY-001
        ├── NotLinted               KIT-LINT-001
        ├── NothingToMigrate        KIT-MIGRATE-001
        ├── NotMoved                KIT-MIGRATE-002
        ├── ServerFailed            KIT-SERVE-001
        ├── PortInUse               KIT-SERVE-002
        ├── RequestFailed           KIT-SERVE-003
        ├── AlreadyRunning          KIT-SERVE-004
        ├── CannotListen            KIT-SERVE-005
        ├── OutputOccupied          KIT-ARTIFACT-001
        ├── LockTimeout             KIT-ARTIFACT-002
        ├── StorageError            KIT-ARTIFACT-003
        ├── ManifestError           KIT-ARTIFACT-004
        ├── ResultUnfit             KIT-BENCH-001
        ├── MeasuringFailed         KIT-DOCTOR-001
        ├── MissingExtra            KIT-ENVIRONMENT-001
        ├── MissingTool             KIT-ENVIRONMENT-002
        └── InternalError           KIT-INTERNAL-001
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

from trtllm_kit.printable import printable


class KitError(Exception):
    """Base of every error the kit raises on purpose."""

    code = "KIT-INTERNAL-000"
    exit_code = 3

    def __init__(self, what: str, *, why: str, hint: str) -> None:
        """Say ``what`` failed with the value, ``why`` with the numbers compared, and one ``hint`` to try."""
        self.what, self.why, self.hint = printable(what), printable(why), printable(hint)
        super().__init__(self.what)

    def lines(self) -> tuple[str, str, str]:
        """Return the three lines a user sees."""
        return (f"error[{self.code}]: {self.what}", f"  because: {self.why}", f"  try: {self.hint}")

    def evidence(self) -> tuple[str, ...]:
        """Return the lines to show between why and try, one for each thing found."""
        return ()

    def __str__(self) -> str:
        """Join the lines, with the evidence between why and try."""
        what, why, hint = self.lines()
        return "\n".join((what, why, *(f"    {line}" for line in self.evidence()), hint))


class UsageError(KitError):
    """The command line asks for something that does not exist or contradicts itself."""

    code = "KIT-USAGE-001"
    exit_code = 2


class ListsProblems(KitError):
    """An error that carries every problem found, one line each, in ``problems``."""

    def __init__(self, what: str, *, why: str, hint: str, problems: tuple[str, ...] = ()) -> None:
        """Carry every problem found, one line each, in ``problems``."""
        super().__init__(what, why=why, hint=hint)
        self.problems = tuple(map(printable, problems))

    def evidence(self) -> tuple[str, ...]:
        """Return the problems."""
        return self.problems


class ProfileError(ListsProblems, UsageError):
    """A deploy profile is wrong; ``problems`` lists everything wrong in it, each with file, line and key."""

    code = "KIT-PROFILE-001"


class ProfileNotFound(UsageError):
    """No shipped profile and no file has that name."""

    code = "KIT-PROFILE-002"


class UnknownHardware(UsageError):
    """No hardware profile has that name."""

    code = "KIT-HARDWARE-001"


class AnswerIsNo(KitError):
    """The verb ran, and the answer is no."""

    exit_code = 1


class PlanRefused(AnswerIsNo):
    """The plan has ERROR findings, so nothing was made."""

    code = "KIT-PLAN-001"


class PlanDrift(AnswerIsNo):
    """An artifact was made for another plan than the one asked for now."""

    code = "KIT-PLAN-002"


class NoToolchain(AnswerIsNo):
    """No toolchain of that name serves that TensorRT-LLM release."""

    code = "KIT-BUILD-002"


class OutdatedServer(AnswerIsNo):
    """A server runs on what the repository held before, and was not to be replaced."""

    code = "KIT-SERVE-006"


class EditedFiles(ListsProblems, AnswerIsNo):
    """A person changed files that would be written again, and nothing of theirs is lost unasked."""

    code = "KIT-ARTIFACT-005"


class QualityGateFailed(AnswerIsNo):
    """The converted checkpoint lost more than the gate allows."""

    code = "KIT-CHECKPOINT-005"


class CannotDo(KitError):
    """The environment, an input file or the disk stood in the way."""

    exit_code = 3


class ModelNotFound(CannotDo):
    """No folder of that name, and no hub id that could be fetched."""

    code = "KIT-MODEL-001"


class ModelConfigError(ListsProblems, CannotDo):
    """``config.json`` cannot be read, lacks a key, or holds a value that has no meaning; ``problems`` lists several."""

    code = "KIT-MODEL-002"


class UnknownArchitecture(CannotDo):
    """``config.json`` names an architecture that the kit cannot read, or cannot lay out for the plan's release."""

    code = "KIT-MODEL-003"


class HubUnavailable(CannotDo):
    """The model hub could not be reached, or does not have that model."""

    code = "KIT-MODEL-004"


class WeightFileError(CannotDo):
    """A weight file is truncated, a git-LFS pointer, not safetensors at all, or changed during the run."""

    code = "KIT-CHECKPOINT-001"


class WeightIndexError(CannotDo):
    """The safetensors index and the files beside it disagree."""

    code = "KIT-CHECKPOINT-002"


class TensorError(CannotDo):
    """A tensor is missing, has another shape than ``config.json`` says, or holds NaN or Inf."""

    code = "KIT-CHECKPOINT-003"


class CalibrationError(CannotDo):
    """Calibration could not measure what the format needs."""

    code = "KIT-CHECKPOINT-004"


class FormatNotMade(CannotDo):
    """The plan asks for a number format that trtkit does not write."""

    code = "KIT-CHECKPOINT-006"


class NotComparable(CannotDo):
    """Two checkpoints have nothing to compare: other models, other tokens, or a layout that cannot be run here."""

    code = "KIT-CHECKPOINT-007"


class WorkerFailed(CannotDo):
    """NVIDIA ModelOpt, in its own environment, stopped, fell silent, or left other tensors than were asked for."""

    code = "KIT-CHECKPOINT-008"


class BuildFailed(CannotDo):
    """A build step failed or did not make its output."""

    code = "KIT-BUILD-001"


class RepositoryError(CannotDo):
    """The model repository cannot be composed from that engine."""

    code = "KIT-REPOSITORY-001"


class NotLinted(ListsProblems, CannotDo):
    """What was given to ``trtkit lint`` is none of the kinds it knows, or its main file cannot be read."""

    code = "KIT-LINT-001"


class NothingToMigrate(CannotDo):
    """What was given to ``trtkit migrate engine`` holds no setting of the engine backend, or cannot be read."""

    code = "KIT-MIGRATE-001"


class NotMoved(ListsProblems, CannotDo):
    """A document or command that cannot be read as one of the release it is said to be for; ``problems`` says where."""

    code = "KIT-MIGRATE-002"


class ServerFailed(CannotDo):
    """The server exited or was not ready in time; ``log`` holds the last lines it said."""

    code = "KIT-SERVE-001"

    def __init__(self, what: str, *, why: str, hint: str, log: tuple[str, ...] = ()) -> None:
        """Carry the last log lines in ``log``."""
        super().__init__(what, why=why, hint=hint)
        self.log = tuple(map(printable, log))

    def evidence(self) -> tuple[str, ...]:
        """Return the log lines."""
        return self.log


class PortInUse(CannotDo):
    """A port the server needs is taken."""

    code = "KIT-SERVE-002"


class RequestFailed(CannotDo):
    """A request to the server failed."""

    code = "KIT-SERVE-003"


class AlreadyRunning(CannotDo):
    """A server runs on that repository already."""

    code = "KIT-SERVE-004"


class CannotListen(CannotDo):
    """The server cannot listen there: no address of this machine, or a port that this user may not bind."""

    code = "KIT-SERVE-005"


class OutputOccupied(CannotDo):
    """The output path holds something the kit did not make."""

    code = "KIT-ARTIFACT-001"


class LockTimeout(CannotDo):
    """Another run works on the same output and did not finish in time."""

    code = "KIT-ARTIFACT-002"


class StorageError(CannotDo):
    """Reading or writing failed: no space, no permission, or a vanished file."""

    code = "KIT-ARTIFACT-003"


class ManifestError(CannotDo):
    """A manifest is missing, unreadable, or disagrees with the files beside it."""

    code = "KIT-ARTIFACT-004"


class MeasuringFailed(CannotDo):
    """``trtkit doctor calibrate`` measured nothing: no GPU in that environment, or its program broke."""

    code = "KIT-DOCTOR-001"


class ResultUnfit(CannotDo):
    """A result of a benchmark that cannot be read, or not be judged as was asked."""

    code = "KIT-BENCH-001"


class MissingExtra(CannotDo):
    """A Python package of an optional extra is not installed."""

    code = "KIT-ENVIRONMENT-001"


class MissingTool(CannotDo):
    """A program or shared library the step needs is not on this machine."""

    code = "KIT-ENVIRONMENT-002"


class InternalError(CannotDo):
    """A bug in the kit."""

    code = "KIT-INTERNAL-001"


_HINTS = {
    errno.ENOSPC: "free space on that file system, or choose an output on another one",
    errno.EDQUOT: "free quota on that file system, or choose an output on another one",
    errno.EACCES: "give this user read (and for outputs write) permission on that path",
    errno.EPERM: "give this user permission on that path",
    errno.EROFS: "choose an output on a file system that is mounted for writing",
    errno.E2BIG: "shorten the environment variables: those of the profile, and those of this shell",
    errno.ENOENT: "check the path; a file that was there may have been removed during the run",
    errno.ENAMETOOLONG: "choose a shorter name; most file systems take 255 bytes for each part of a path",
    errno.EEXIST: "choose another path, or move what stands there away",
    errno.ENOTDIR: "choose another path: a part of this one is a file and no folder",
}


def storage_error(error: OSError, doing: str) -> StorageError:
    """Turn an ``OSError`` into the three-line form; ``doing`` names the work, e.g. ``"writing the checkpoint"``."""
    place = str(error.filename) if error.filename else "the file system"
    return StorageError(
        f"{doing}: {place}",
        why=f"the system says: {error.strerror or error} (errno {error.errno})",
        hint=_HINTS.get(error.errno or 0, "look at that path with ls -ld and df -h"),
    )


def all_error_classes() -> Iterator[type[KitError]]:
    """Yield every class of the tree that has a code of its own, sorted by code (the error reference reads this)."""
    pending: list[type[KitError]] = [KitError]
    found: dict[str, type[KitError]] = {}
    while pending:
        cls = pending.pop()
        pending.extend(cls.__subclasses__())
        if "code" in vars(cls) and cls is not KitError:
            found[cls.code] = cls
    yield from (found[code] for code in sorted(found))
