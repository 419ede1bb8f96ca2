"""Details of errors, as bytes."""

from __future__ import annotations

import pickle
import unittest

import execwire
from execwire import errors
from execwire import _status
from execwire._backoff import RetryLimit
from execwire._status import decode


def field(number: int, value: bytes) -> bytes:
    return bytes([number << 3 | 2, len(value)]) + value


def detail(name: str, value: bytes) -> bytes:
    return field(3, field(1, b"type.googleapis.com/google.rpc." + name.encode()) + field(2, value))


STATUS = (
    b"\x08\x08"
    + field(2, b"too many")
    + detail(
        "ErrorInfo",
        field(1, b"TOO_MANY_PROCESSES")
        + field(2, b"execwire.v1")
        + field(3, field(1, b"limit") + field(2, b"100")),
    )
    + detail("BadRequest", field(1, field(1, b"a.b") + field(2, b"is wrong")))
    + detail("ResourceInfo", field(1, b"process") + field(2, b"p1"))
    + detail("RetryInfo", field(1, b"\x08\x02\x10\x80\xca\xb5\xee\x01"))
)


class Details(unittest.TestCase):
    def test_details_are_decoded(self) -> None:
        details = decode(STATUS)
        self.assertEqual(details.reason, "TOO_MANY_PROCESSES")
        self.assertEqual(details.metadata, {"limit": "100"})
        self.assertEqual(details.fields, [("a.b", "is wrong")])
        self.assertEqual((details.resource, details.retry_after), ("p1", 2.5))
        error = errors.make("RESOURCE_EXHAUSTED", "too many", details)
        self.assertIsInstance(error, execwire.LimitError)
        self.assertEqual(str(error), "too many (a.b: is wrong)")

    def test_malformed_details_are_skipped(self) -> None:
        for end in range(len(STATUS)):
            decode(STATUS[:end])
            for byte in (0x00, 0x7F, 0xFF):
                decode(STATUS[:end] + bytes([byte]) + STATUS[end + 1 :])

    def test_foreign_reasons_are_ignored(self) -> None:
        self.assertEqual(decode(STATUS.replace(b"execwire.v1", b"elsewhere.x")).reason, "")

    def test_unknown_reason_uses_code(self) -> None:
        details = decode(STATUS.replace(b"TOO_MANY_PROCESSES", b"TOO_MANY_SOMETHING"))
        error = errors.make("NOT_FOUND", "gone", details)
        self.assertIsInstance(error, execwire.NotFoundError)
        self.assertEqual(error.reason, "TOO_MANY_SOMETHING")


class Transient(unittest.TestCase):
    def test_evicted_connection_is_transient(self) -> None:
        for reason, transient in (("TOO_MANY_CONNECTIONS", True), ("TOO_MANY_PROCESSES", False)):
            error = errors.make("RESOURCE_EXHAUSTED", "full", _status.Details(reason=reason))
            self.assertIs(RetryLimit().transient(error), transient, reason)


class Pickled(unittest.TestCase):
    def test_errors_can_be_pickled(self) -> None:
        missing = errors.make(
            "NOT_FOUND",
            "no such file",
            _status.Details(reason="PATH_NOT_FOUND", metadata={"errno": "ENOENT"}, resource="/x"),
        )
        for error in (
            missing,
            errors.make("UNAVAILABLE", "gone"),
            errors.UsageError("wrong"),
            errors.ClosedError("closed"),
            errors.ProtocolError("broken"),
            errors.OutputLimitError(5),
            errors.LostError("p", True, None, 3, 1.0, missing),
            errors.RestartedError("p", True, None, 3, 1.0, missing),
        ):
            again = pickle.loads(pickle.dumps(error))
            self.assertIs(type(again), type(error))
            self.assertEqual((str(again), again.args), (str(error), error.args))
            self.assertEqual(vars(again).keys(), vars(error).keys())
            for member in ("errno", "filename"):
                self.assertEqual(getattr(again, member, None), getattr(error, member, None))


if __name__ == "__main__":
    unittest.main()
