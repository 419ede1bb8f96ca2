package client

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestResume_ContinuesAfterSeq(t *testing.T) {
	list := testEvents()
	fake, c := newFake(t, func(stream serverStream) error {
		request, err := stream.Recv()
		if err != nil {
			return err
		}
		resume := request.GetResume()
		if resume.GetSessionId() != "s" || resume.GetProcessId() != "p" || resume.GetAfterSeq() != 2 || resume.GetGrace() != nil {
			t.Errorf("opened with %v", request)
		}
		if err := stream.Send(started(100)); err != nil {
			return err
		}
		for request.GetStdin() == nil {
			if request, err = stream.Recv(); err != nil {
				return err
			}
		}
		if stdin := request.GetStdin(); stdin.GetOffset() != 100 || string(stdin.GetData()) != "abc" {
			t.Errorf("sent %v as input that follows 100 bytes", stdin)
		}
		return stream.Send(events(list[2:]...))
	})
	var out, errOut bytes.Buffer
	exit, err := c.Resume(t.Context(), ProcessRef{SessionID: "s", ProcessID: "p", AfterSeq: 2},
		RunOptions{Stdin: strings.NewReader("abc"), Stdout: &out, Stderr: &errOut})
	if err != nil || exit.Code != 7 || out.String() != "two late" || errOut.String() != "" || exit.DroppedBytes != 0 || exit.StdoutBytes != 12 {
		t.Errorf("got %+v, %v and %q, %q", exit, err, out.String(), errOut.String())
	}
	if fake.callCount() != 1 {
		t.Errorf("%d streams", fake.callCount())
	}
}

// An existing process is detached where a started one is terminated.
func TestResume_LocalError_Detaches(t *testing.T) {
	detached := make(chan struct{})
	fake, c := newFake(t,
		sends(nil, started(0), events(testEvents()[:1]...)),
		func(stream serverStream) error {
			for {
				request, err := stream.Recv()
				if err != nil {
					return err
				}
				switch {
				case request.GetResume() != nil:
					if err := stream.Send(started(0)); err != nil {
						return err
					}
				case request.GetDetach() != nil:
					close(detached)
					return nil
				}
			}
		})
	full := errors.New("full")
	_, err := c.Resume(t.Context(), ProcessRef{ProcessID: "p"}, RunOptions{Stdout: failingWriter{full}})
	if output := new(OutputError); !errors.As(err, &output) || !errors.Is(err, full) {
		t.Errorf("failed with %v", err)
	}
	select {
	case <-detached:
	default:
		t.Error("it was not given up")
	}
	if n := len(fake.terminations()); n != 0 {
		t.Errorf("it was terminated %d times", n)
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

func TestResume_WithoutProcess_Fails(t *testing.T) {
	_, c := newFake(t)
	if _, err := c.Resume(t.Context(), ProcessRef{}, RunOptions{Stdout: io.Discard}); err == nil || !strings.Contains(err.Error(), "ProcessID") {
		t.Errorf("got %v", err)
	}
}
