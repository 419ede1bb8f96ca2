package eventlog

import (
	"strings"
	"testing"
)

func TestRetainedOutputIsWhatIsRetained(t *testing.T) {
	const events = 3 * retainedBatch
	log := New(Limits{RetainedBytes: 1 << 20, RetainedEvents: events})
	said := ""
	for i := range 2 * events {
		word := string(rune('a' + i%26))
		log.Append(Stream(1+i%2), []byte(word))
		if i == events {
			log.AppendExited()
		}
		said += word
	}
	var heard strings.Builder
	seq := log.Stats().FirstRetainedSeq
	for e := range log.RetainedOutput() {
		if e.Kind != Output || e.Seq < seq {
			t.Fatalf("%+v after %d", e, seq)
		}
		seq = e.Seq + 1
		heard.Write(e.Data)
	}
	if want := said[len(said)-events:]; heard.String() != want {
		t.Errorf("heard %q, want %q", heard.String(), want)
	}
	for range log.RetainedOutput() {
		break
	}
	if n := log.Stats().Readers; n != 0 {
		t.Errorf("%d readers are left", n)
	}
}

func TestRetainedOutputOfNothing(t *testing.T) {
	for e := range New(Limits{}).RetainedOutput() {
		t.Errorf("%+v", e)
	}
}
