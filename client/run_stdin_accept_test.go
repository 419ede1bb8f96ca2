package client

import (
	"errors"
	"strings"
	"testing"
)

// Input of an older stream can still reach the process after a newer stream was told
// how much was accepted. The server then accepts more than the newer stream has sent;
// that input must not be sent again.
func TestStdinPump_AcceptedBeyondSent(t *testing.T) {
	p := newStdinPump(newStdinReader(strings.NewReader("0123456789")), false, func(err error) { t.Errorf("reading: %v", err) })
	defer p.stop()
	if err := p.resume(0, 100); err != nil {
		t.Fatal(err)
	}
	<-p.reading // all of it is read
	if got := p.next().GetStdin(); string(got.GetData()) != "0123456789" {
		t.Fatalf("the first stream sends %v", got)
	}
	if err := p.resume(0, 100); err != nil { // a new stream, before the process has accepted it
		t.Fatal(err)
	}
	if err := p.accept(4, false); err != nil {
		t.Fatalf("input that the stream before had sent was accepted: %v", err)
	}
	if got := p.next().GetStdin(); got.GetOffset() != 4 || string(got.GetData()) != "456789" {
		t.Errorf("the second stream sends %v", got)
	}
	var protocol *ProtocolError
	if err := p.accept(11, false); !errors.As(err, &protocol) {
		t.Errorf("accepting more than was ever read is %v", err)
	}
}
