package eventlog

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"unsafe"
)

func TestAppend_ConsecutiveSeqAndOffsets(t *testing.T) {
	l := New(Limits{})
	out, errs := l.Writer(Stdout), l.Writer(Stderr)
	write(t, out, "ab")
	write(t, errs, "x")
	write(t, out, "cde")
	if got := l.AppendExited(); got != 4 {
		t.Errorf("AppendExited = %d, want 4", got)
	}
	if got := l.AppendClosed(); got != 5 {
		t.Errorf("AppendClosed = %d, want 5", got)
	}
	r := must[*Reader](t)(l.NewReader(0))
	defer r.Close()
	b := tryNext(t, r, 0)
	if got, want := text(b), "o(ab)e(x)o(cde)!."; got != want {
		t.Errorf("events %s, want %s", got, want)
	}
	for i, offset := range []uint64{0, 0, 2, 0, 0} {
		if e := b.Events[i]; e.Seq != uint64(i+1) || e.Offset != offset {
			t.Errorf("event %d has seq %d and offset %d, want offset %d", i+1, e.Seq, e.Offset, offset)
		}
	}
	if _, _, err := r.TryNext(0); err != io.EOF {
		t.Errorf("after closed: %v, want io.EOF", err)
	}
	if _, err := r.Next(testContext(t), 0); err != io.EOF {
		t.Errorf("after closed: %v, want io.EOF", err)
	}
}

func TestCommit_Data_IsNotCopied(t *testing.T) {
	l := New(Limits{})
	w := l.Writer(Stdout)
	buf := w.Buffer()
	w.Commit(copy(buf, "hello"), noTime)
	r := must[*Reader](t)(l.NewReader(0))
	defer r.Close()
	data := tryNext(t, r, 0).Events[0].Data
	if unsafe.SliceData(data) != unsafe.SliceData(buf) {
		t.Error("Data was copied out of the buffer")
	}
	if cap(data) != len(data) {
		t.Errorf("cap(Data) = %d reaches into bytes of later events", cap(data))
	}
}

func TestCommit_LargeOutput_IsSplitAtMaxChunkBytes(t *testing.T) {
	l := New(Limits{})
	w := l.Writer(Stdout)
	for len(w.Buffer()) < 2*MaxChunkBytes {
		w.Commit(len(w.Buffer()), noTime) // grows the blocks
	}
	before := l.Stats().LastSeq
	w.Commit(len(w.Buffer()), noTime)
	l.Append(Stderr, make([]byte, MaxChunkBytes+1))
	r := must[*Reader](t)(l.NewReader(before))
	defer r.Close()
	var sizes []int
	for {
		b, ok, _ := r.TryNext(0)
		if !ok {
			break
		}
		for _, e := range b.Events {
			sizes = append(sizes, len(e.Data))
		}
	}
	want := []int{MaxChunkBytes, MaxChunkBytes, MaxChunkBytes, 1}
	if len(sizes) != 4 || sizes[0] != want[0] || sizes[1] != want[1] || sizes[2] != want[2] || sizes[3] != want[3] {
		t.Errorf("chunks %v, want %v", sizes, want)
	}
}

func TestTryNext_MaxBytes_ReturnsWholeEvents(t *testing.T) {
	l := New(Limits{})
	for _, s := range []string{"aaaa", "bb", "cc", "d"} {
		l.Append(Stdout, []byte(s))
	}
	r := must[*Reader](t)(l.NewReader(0))
	defer r.Close()
	for _, want := range []string{"o(aaaa)", "o(bb)", "o(cc)o(d)"} {
		if got := text(tryNext(t, r, 3)); got != want {
			t.Errorf("batch %s, want %s", got, want)
		}
	}
}

func TestTryNext_NoMaxBytes_IsBounded(t *testing.T) {
	l := New(Limits{})
	for range 300 {
		l.Append(Stdout, []byte("x"))
	}
	l.Append(Stderr, make([]byte, 5*MaxChunkBytes))
	r := must[*Reader](t)(l.NewReader(0))
	defer r.Close()
	if n := len(tryNext(t, r, 0).Events); n != maxBatchEvents {
		t.Errorf("%d events, want %d", n, maxBatchEvents)
	}
	b := tryNext(t, r, 1<<30)
	bytes := 0
	for _, e := range b.Events {
		bytes += len(e.Data)
	}
	if bytes > maxBatchBytes || bytes <= MaxChunkBytes {
		t.Errorf("%d bytes, want more than one chunk and at most %d", bytes, maxBatchBytes)
	}
}

func TestNext_WaitsForEvent(t *testing.T) {
	l := New(Limits{})
	r := must[*Reader](t)(l.NewReader(0))
	defer r.Close()
	got := make(chan string)
	go func() {
		b, err := r.Next(testContext(t), 0)
		if err != nil {
			t.Error(err)
		}
		got <- text(b)
	}()
	untilWaiting(t, l, &l.readers, 1)
	write(t, l.Writer(Stdout), "hi")
	if s := <-got; s != "o(hi)" {
		t.Errorf("got %s", s)
	}
}

func TestNext_ContextEnds_ReturnsCause(t *testing.T) {
	l := New(Limits{})
	r := must[*Reader](t)(l.NewReader(0))
	defer r.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("client gone")
	done := make(chan error)
	go func() {
		_, err := r.Next(ctx, 0)
		done <- err
	}()
	untilWaiting(t, l, &l.readers, 1)
	cancel(gone)
	if err := <-done; err != gone {
		t.Errorf("Next = %v, want the cause", err)
	}
	untilWaiting(t, l, &l.readers, 0)
	l.Append(Stdout, []byte("x"))
	if b, err := r.Next(ctx, 0); err != nil || text(b) != "o(x)" {
		t.Errorf("available events are returned nevertheless: got %s, %v", text(b), err)
	}
}

func TestReaderClose_WakesNext(t *testing.T) {
	l := New(Limits{})
	r := must[*Reader](t)(l.NewReader(0))
	done := make(chan error)
	go func() {
		_, err := r.Next(testContext(t), 0)
		done <- err
	}()
	untilWaiting(t, l, &l.readers, 1)
	r.Close()
	r.Close()
	if err := <-done; err != ErrClosed {
		t.Errorf("Next = %v, want ErrClosed", err)
	}
	if n := l.Stats().Readers; n != 0 {
		t.Errorf("%d readers remain", n)
	}
}

func TestNewReader_Limit(t *testing.T) {
	l := New(Limits{MaxReaders: 1})
	r := must[*Reader](t)(l.NewReader(0))
	if _, err := l.NewReader(0); err != ErrTooManyReaders {
		t.Errorf("second reader: %v, want ErrTooManyReaders", err)
	}
	first := must[*Owner](t)(l.Own(0)) // does not count as a reader
	must[*Owner](t)(l.Own(0))
	if _, err := l.Own(0); err != ErrTooManyReaders {
		t.Errorf("with one replaced owner that has not read the end: %v, want ErrTooManyReaders", err)
	}
	first.Release(false)
	must[*Owner](t)(l.Own(0))
	r.Close()
	must[*Reader](t)(l.NewReader(0)).Close()
}

func TestFutureSeq_Fails(t *testing.T) {
	l := New(Limits{})
	l.Append(Stdout, []byte("x"))
	if _, err := l.NewReader(2); !errors.Is(err, ErrFutureSeq) {
		t.Errorf("NewReader: %v", err)
	}
	if _, err := l.Own(2); !errors.Is(err, ErrFutureSeq) {
		t.Errorf("Own: %v", err)
	}
	o := must[*Owner](t)(l.Own(1))
	if err := o.Acknowledge(2); !errors.Is(err, ErrFutureSeq) {
		t.Errorf("Acknowledge: %v", err)
	}
}

func TestInvalidCalls_Panic(t *testing.T) {
	closed := func() *Log {
		l := New(Limits{})
		l.AppendExited()
		l.AppendClosed()
		return l
	}
	for name, f := range map[string]func(){
		"append after closed": func() { closed().Append(Stdout, []byte("x")) },
		"exited after closed": func() { closed().AppendExited() },
		"closed after closed": func() { closed().AppendClosed() },
		"buffer after closed": func() { closed().Writer(Stdout).Buffer() },
		"exited twice":        func() { l := New(Limits{}); l.AppendExited(); l.AppendExited() },
		"closed but running":  func() { New(Limits{}).AppendClosed() },
		"no such stream":      func() { New(Limits{}).Append(0, []byte("x")) },
		"commit of nothing":   func() { New(Limits{}).Writer(Stdout).Commit(1, noTime) },
		"commit of too much":  func() { w := New(Limits{}).Writer(Stdout); w.Commit(len(w.Buffer())+1, noTime) },
		"commit after closed": func() {
			l := New(Limits{})
			w := l.Writer(Stdout)
			w.Buffer()
			l.AppendExited()
			l.AppendClosed()
			w.Commit(1, noTime)
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if s, _ := recover().(string); !strings.HasPrefix(s, "eventlog: ") {
					t.Errorf("panic %q, want one of this package", s)
				}
			}()
			f()
		})
	}
}

func TestAppend_OutstandingBuffer_KeepsOrder(t *testing.T) {
	l := New(Limits{})
	w := l.Writer(Stdout)
	write(t, w, "one ")
	buf := w.Buffer()
	l.Append(Stdout, []byte("notice "))
	l.Append(Stdout, []byte("twice "))
	w.Commit(copy(buf, "two"), noTime)
	r := must[*Reader](t)(l.NewReader(0))
	defer r.Close()
	b := tryNext(t, r, 0)
	if got, want := text(b), "o(one )o(notice )o(twice )o(two)"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if last := b.Events[3]; last.Offset != 17 {
		t.Errorf("offset %d, want 17", last.Offset)
	}
	if got := l.Snapshot(Stdout); !bytes.Equal(got.Head, []byte("one notice twice two")) {
		t.Errorf("head %q", got.Head)
	}
}

func TestLog_Silent_UsesLittleMemory(t *testing.T) {
	if size := unsafe.Sizeof(Log{}); size > 640 {
		t.Errorf("a log uses %d bytes", size)
	}
	l := New(Limits{})
	for _, id := range []Stream{Stdout, Stderr} {
		l.Writer(id).Buffer()
		l.Writer(id).Commit(0, noTime) // read(2) returned EAGAIN
	}
	if held := l.Stats().HeldBytes; held != 0 {
		t.Errorf("%d bytes held before the first byte was read", held)
	}
}
