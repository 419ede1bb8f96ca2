package eventlog

import (
	"strings"
	"testing"
)

func TestRetainedOutput_ReturnsRetained(t *testing.T) {
	const events = 3 * retainedBatch
	log := New(Limits{RetainedBytes: 1 << 20, RetainedEvents: events})
	written := ""
	for i := range 2 * events {
		word := string(rune('a' + i%26))
		log.Append(Stream(1+i%2), []byte(word))
		if i == events {
			log.AppendExited()
		}
		written += word
	}
	var output strings.Builder
	seq := log.Stats().FirstRetainedSeq
	for e := range log.RetainedOutput() {
		if e.Kind != Output || e.Seq < seq {
			t.Fatalf("%+v after %d", e, seq)
		}
		seq = e.Seq + 1
		output.Write(e.Data)
	}
	if want := written[len(written)-events:]; output.String() != want {
		t.Errorf("got %q, want %q", output.String(), want)
	}
	for range log.RetainedOutput() {
		break
	}
	if n := log.Stats().Readers; n != 0 {
		t.Errorf("%d readers remain", n)
	}
}

func TestRetainedOutput_EmptyLog(t *testing.T) {
	for e := range New(Limits{}).RetainedOutput() {
		t.Errorf("%+v", e)
	}
}
