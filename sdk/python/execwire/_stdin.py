"""Input of a process, kept until the server has accepted it."""

from __future__ import annotations

from collections import deque
from typing import Deque, Optional, Tuple

from .errors import ProtocolError
from .v1 import process_run_pb2

#: The size limit of one message.
BLOCK_BYTES = 32_700
_END_OF_TRANSMISSION = b"\x04"


class StdinBuffer:
    """At most a window of unaccepted input, to be sent again after a lost connection.

    Callers hold the lock of the process.
    """

    def __init__(self) -> None:
        self.terminal = False
        #: Whether the process accepts no more.
        self.discarded = False
        #: Whether input was rejected because of that: its length is unknown.
        self.refused = False
        #: Whether the input is complete.
        self.ended = False
        # Unaccepted input, oldest first: the offset of each block and its bytes.
        self._blocks: Deque[Tuple[int, bytearray]] = deque()
        self._accepted = self._sent = self._read = self._window = 0
        self._end_sent = self._end_accepted = False
        # Whether the process received input before: it is written again up to _accepted.
        self._repeated = False
        self._last = b"\n"

    def set_repeated(self) -> None:
        """Records that an earlier start may have sent the beginning of this input."""
        self._repeated = True

    def start_at(self, offset: int, terminal: bool) -> None:
        """Sets the offset after input that the process received from others."""
        self._accepted = self._sent = self._read = offset
        self.terminal = terminal

    @property
    def free_space(self) -> int:
        """How many bytes can be added."""
        return max(0, self._window - max(0, self._read - self._accepted)) + max(
            0, self._accepted - self._read
        )

    @property
    def drained(self) -> bool:
        """Whether all input was accepted, including its end.

        As far as the process accepts input.
        """
        end_known = not self.ended or self.terminal or self._end_accepted
        return self.discarded or end_known and self._accepted >= self._read

    @property
    def short(self) -> bool:
        """Whether the input ended before the accepted end of an earlier one."""
        return self.ended and not self.refused and self._read < self._accepted

    def add(self, data: bytes) -> None:
        """Adds input, at most ``free_space()`` bytes."""
        if not data or self.discarded:
            return
        self._append(data)
        self._last = data[-1:]

    def end(self) -> None:
        """Ends the input."""
        if self.ended:
            return
        if self.terminal and not self.discarded:
            # In the middle of a line the character only submits the line.
            self._append(_END_OF_TRANSMISSION * (1 if self._last == b"\n" else 2))
        self.ended = True

    def discard(self) -> None:
        """Ends the input: the process accepts no more."""
        self.discarded = True
        self._blocks.clear()

    def resume(self, offset: int, window: int) -> None:
        """Begins a stream: offset is what the server has accepted."""
        if offset < self._accepted:
            raise ProtocolError(f"it has accepted {offset} bytes of stdin after {self._accepted}")
        self._check(offset)
        self._sent, self._window, self._end_sent = offset, window, False
        self._release(offset)

    def accept(self, offset: int, end: bool) -> None:
        """Records that the server has accepted input up to offset; with end, all of it."""
        self._check(offset)
        self._sent = max(self._sent, offset)
        self._end_accepted = self._end_accepted or end
        if offset > self._accepted:
            self._release(offset)

    def next(self) -> Optional[process_run_pb2.RunStdin]:
        """Returns the next piece to send, or None."""
        if self.discarded:
            return None
        data = self._unsent()
        end = self.ended and not self.terminal and self._sent + len(data) == self._read
        if not data and (not end or self._end_sent):
            return None
        stdin = process_run_pb2.RunStdin(offset=self._sent, data=data, end_of_file=end)
        self._sent += len(data)
        self._end_sent = end
        return stdin

    def _append(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            if not self._blocks or len(self._blocks[-1][1]) == BLOCK_BYTES:
                self._blocks.append((self._read, bytearray()))
            block = self._blocks[-1][1]
            piece = data[at : at + BLOCK_BYTES - len(block)]
            block += piece
            at += len(piece)
            self._read += len(piece)
        self._release(self._accepted)

    def _check(self, offset: int) -> None:
        if offset > self._read and not self._repeated:
            raise ProtocolError(f"it accepted {offset} bytes of stdin when {self._read} were sent")

    def _release(self, offset: int) -> None:
        self._accepted = offset
        while self._blocks and self._blocks[0][0] + len(self._blocks[0][1]) <= offset:
            self._blocks.popleft()

    def _unsent(self) -> bytes:
        for offset, block in self._blocks:
            if self._sent < offset + len(block):
                end = min(offset + len(block), self._accepted + self._window)
                return bytes(block[self._sent - offset : max(self._sent, end) - offset])
        return b""
