package eventlog

import (
	"bytes"
	"testing"
)

// The tail is the end of all that was written, as far as the snapshot reaches, whatever is
// retained.
func TestTail_IsTheEndOfTheStream(t *testing.T) {
	const ends = 8
	l := New(Limits{RetainedBytes: MaxChunkBytes, SnapshotBytes: ends})
	w, written := l.Writer(Stdout), []byte{}
	for i := range 40 {
		for _, n := range []int{0, 1, ends - 1, ends, ends + 1, 2 * ends, 3 * ends} {
			got := l.Tail(Stdout, n)
			if !bytes.HasSuffix(written, got) || len(got) > n {
				t.Fatalf("the last %d bytes of %q are %q", n, written, got)
			}
			if most := min(n, len(written), ends); len(got) < most {
				t.Fatalf("of the last %d bytes of %q there are only %d", n, written, len(got))
			}
		}
		chunk := bytes.Repeat([]byte{byte('a' + i%26)}, i%5+1)
		write(t, w, string(chunk))
		written = append(written, chunk...)
	}
}
