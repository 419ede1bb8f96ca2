package client

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

func TestProcess_Read_ReturnsEventsAfterCursor(t *testing.T) {
	withScriptedProcess(t, func(t *testing.T, p *scriptedProcess) {
		process := p.start(StartOptions{})
		p.sendEvents(stdout(1, 0, "abc"), stderr(2, 0, "de"), stdout(3, 3, "f"))
		page, err := process.Read(t.Context(), ReadOptions{MaxBytes: 4})
		if err != nil || len(page.Events) != 1 || page.AfterSeq != 1 || page.Closed {
			t.Fatalf("got %+v, %v", page, err)
		}
		if seq := p.acknowledged(); seq != 0 {
			t.Errorf("acknowledged %d before the caller came back", seq)
		}
		page, err = process.Read(t.Context(), ReadOptions{AfterSeq: page.AfterSeq})
		if err != nil || len(page.Events) != 2 || page.AfterSeq != 3 {
			t.Fatalf("got %+v, %v", page, err)
		}
		if seq := p.acknowledged(); seq != 1 {
			t.Errorf("acknowledged %d", seq)
		}
		p.close(4, 4, 2)
		page, err = process.Read(t.Context(), ReadOptions{AfterSeq: 3})
		if err != nil || len(page.Events) != 2 || !page.Closed {
			t.Errorf("got %+v, %v", page, err)
		}
		page, err = process.Read(t.Context(), ReadOptions{AfterSeq: page.AfterSeq, Wait: -1})
		if err != nil || len(page.Events) != 0 || !page.Closed {
			t.Errorf("after the end: %+v, %v", page, err)
		}
		if _, err := process.Read(t.Context(), ReadOptions{AfterSeq: 6}); err == nil {
			t.Error("read behind the end")
		}
	})
}

func TestProcess_Read_Wait(t *testing.T) {
	withScriptedProcess(t, func(t *testing.T, p *scriptedProcess) {
		process := p.start(StartOptions{})
		before := time.Now()
		if page, err := process.Read(t.Context(), ReadOptions{Wait: time.Minute}); err != nil || len(page.Events) != 0 || time.Since(before) != time.Minute {
			t.Errorf("got %+v, %v after %v", page, err, time.Since(before))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := process.Read(ctx, ReadOptions{Wait: time.Minute}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		result := make(chan int)
		go func() {
			page, _ := process.Read(t.Context(), ReadOptions{Wait: -1})
			result <- len(page.Events)
		}()
		synctest.Wait()
		p.sendEvents(stdout(1, 0, "a"))
		if n := <-result; n != 1 {
			t.Errorf("got %d events", n)
		}
		p.close(2, 1)
	})
}

func TestCommunicate_WritesInputAndCollectsOutput(t *testing.T) {
	withScriptedProcess(t, func(t *testing.T, p *scriptedProcess) {
		process := p.start(StartOptions{}, func(c *Command) { c.PipeStdin = true })
		p.sendEvents(stdout(1, 0, "a"))
		p.script.Go(func() {
			_, input, eof, _ := p.received()
			if input != "input" || !eof {
				t.Errorf("got %q, end %v", input, eof)
			}
			p.sendEvents(stderr(2, 0, "b"), stdout(3, 1, "c"))
			p.close(4, 2, 1)
		})
		stdout, stderr, exit, err := process.Communicate(t.Context(), []byte("input"))
		if string(stdout) != "ac" || string(stderr) != "b" || exit.StdoutBytes != 2 || err != nil {
			t.Errorf("got %q, %q, %+v, %v", stdout, stderr, exit, err)
		}
	})
}

func TestCommunicate_MissingOutput_Fails(t *testing.T) {
	withScriptedProcess(t, func(t *testing.T, p *scriptedProcess) {
		process := p.start(StartOptions{KeepBytes: -1})
		r := startReader(t.Context(), process, false)
		p.sendEvents(stdout(1, 0, "abc"))
		p.close(2, 3)
		<-r.over
		stdout, _, exit, err := process.Communicate(t.Context(), nil)
		var missing *MissingOutputError
		if !errors.As(err, &missing) || missing.DroppedBytes != 3 || len(stdout) != 0 || exit.StdoutBytes != 3 {
			t.Errorf("got %q, %+v, %v", stdout, exit, err)
		}
	})
}

func TestCommunicate_Cancelled_DoesNotEndProcess(t *testing.T) {
	withScriptedProcess(t, func(t *testing.T, p *scriptedProcess) {
		process := p.start(StartOptions{}, func(c *Command) { c.PipeStdin = true })
		p.sendEvents(stdout(1, 0, "a"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		stdout, _, _, err := process.Communicate(ctx, make([]byte, 10<<20))
		if string(stdout) != "a" || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %q, %v", stdout, err)
		}
		if len(p.fake.terminations()) != 0 {
			t.Error("it was terminated")
		}
		p.close(2, 1)
		if _, err := process.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestProcessFeed_BoundsKeptEvents(t *testing.T) {
	for name, size := range map[string]int{"full events": 32_700, "events of a byte": 1} {
		t.Run(name, func(t *testing.T) {
			f := newProcessFeed("p", 0, 0, newAcknowledger())
			most, data := DefaultKeepBytes/(size+eventBytes), strings.Repeat("x", size)
			fill := func() {
				for range 2 * most {
					f.add(stdout(f.last+1, 0, data), f.last+1)
				}
			}
			fill()
			if len(f.items) != 2*most {
				t.Errorf("%d of %d events are retained that nobody has consumed", len(f.items), 2*most)
			}
			leave := f.discard()
			fill()
			if f.kept > DefaultKeepBytes || len(f.items) > most {
				t.Errorf("%d events, %d bytes are kept", len(f.items), f.kept)
			}
			leave()
		})
	}
}

func TestProcess_Events_Kinds(t *testing.T) {
	kinds := []Event{
		newEvent(stdout(1, 0, "a")), newEvent(gap(3, 1)), newEvent(exited(3, 0)), newEvent(closed(4)),
		newEvent(&execwirev1.ProcessEvent{Seq: 5}), &FailedEvent{after: 6}}
	var after []uint64
	for _, e := range kinds {
		after = append(after, e.After())
	}
	if _, ok := kinds[4].(*UnknownEvent); !ok || !slices.Equal(after, []uint64{1, 2, 3, 4, 5, 6}) {
		t.Errorf("%T, %v", kinds[4], after)
	}
}

func TestProcess_Events_ContextDone_Ends(t *testing.T) {
	withScriptedProcess(t, func(t *testing.T, p *scriptedProcess) {
		process := p.start(StartOptions{})
		p.sendEvents(stdout(1, 0, "a"), stdout(2, 1, "b"))
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		n, last := 0, error(nil)
		for event, err := range process.Events(ctx) {
			if last = err; event != nil {
				n++
			}
			cancel(errLeftIt)
		}
		if n != 1 || !errors.Is(last, errLeftIt) {
			t.Errorf("%d events came, and %v", n, last)
		}
		p.close(3, 2)
	})
}

// A program polls and then ranges from its cursor: earlier events must count as
// consumed, or a process with a full window would block forever.
func TestProcess_EventsAfter_ConsumesEarlierEvents(t *testing.T) {
	withScriptedProcess(t, func(t *testing.T, p *scriptedProcess) {
		process := p.start(StartOptions{})
		p.sendEvents(stdout(1, 0, "a"), stdout(2, 1, "b"))
		page, err := process.Read(t.Context(), ReadOptions{})
		if err != nil || page.AfterSeq != 2 {
			t.Fatalf("got %+v, %v", page, err)
		}
		over := make(chan struct{})
		go func() {
			defer close(over)
			for range process.EventsAfter(t.Context(), page.AfterSeq) {
			}
		}()
		synctest.Wait()
		if seq := p.acknowledged(); seq != 2 {
			t.Errorf("acknowledged %d", seq)
		}
		p.close(3, 2)
		<-over
	})
}
