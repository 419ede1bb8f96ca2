package eventlog

import (
	"context"
	"io"
	"syscall"
	"testing"
	"unsafe"
)

// BenchmarkLogThroughput measures the path of every byte without system calls: one writer and
// one owner that acknowledges every batch, each in a goroutine. It also reports CPU seconds
// per GiB, which vary less than MB/s.
func BenchmarkLogThroughput(b *testing.B) {
	for _, c := range []struct {
		name string
		size int // of each read; 0: the size of the buffer
	}{
		{"full", 0},
		{"32KiB", 32 << 10},
		{"4KiB", 4 << 10},
		{"16B", 16},
	} {
		b.Run(c.name, func(b *testing.B) {
			l := New(Limits{})
			o, _ := l.Own(0)
			size := c.size
			if size == 0 {
				size = 2 * MaxChunkBytes
			}
			b.SetBytes(int64(size))
			b.ReportAllocs()
			before := cpuSeconds()
			go writeAll(l, size, b.N)
			consume(b, o)
			b.ReportMetric((cpuSeconds()-before)/(float64(size)*float64(b.N)/(1<<30)), "cpu-s/GiB")
		})
	}
}

// BenchmarkLogSteps measures the same in one goroutine, without wake-ups.
func BenchmarkLogSteps(b *testing.B) {
	for _, c := range []struct {
		name string
		size int
	}{{"full", 2 * MaxChunkBytes}, {"32KiB", 32 << 10}, {"16B", 16}} {
		b.Run(c.name, func(b *testing.B) {
			l := New(Limits{})
			o, _ := l.Own(0)
			w := l.Writer(Stdout)
			b.SetBytes(int64(c.size))
			b.ReportAllocs()
			for range b.N {
				n := min(c.size, len(w.Buffer()))
				w.Commit(n, noTime)
				batch, ok, _ := o.TryNext(0)
				if !ok {
					b.Fatal("no batch")
				}
				o.Acknowledge(batch.Events[len(batch.Events)-1].Seq)
			}
		})
	}
}

// BenchmarkFloor measures the zeroed memory of the blocks alone.
func BenchmarkFloor(b *testing.B) {
	b.SetBytes(maxBlockBytes)
	before := cpuSeconds()
	for range b.N {
		sink = make([]byte, maxBlockBytes)
	}
	b.ReportMetric((cpuSeconds()-before)/(float64(maxBlockBytes)*float64(b.N)/(1<<30)), "cpu-s/GiB")
}

var sink []byte

func BenchmarkNew(b *testing.B) {
	b.ReportAllocs()
	for range b.N {
		l := New(Limits{})
		l.Writer(Stdout)
		l.Writer(Stderr)
	}
	b.ReportMetric(float64(unsafe.Sizeof(Log{})), "B/log")
}

// writeAll writes n times size bytes through buffers.
func writeAll(l *Log, size, n int) {
	w := l.Writer(Stdout)
	for left := size * n; left > 0; {
		buf := w.Buffer()
		if buf == nil {
			w.WaitSpace(context.Background())
			continue
		}
		written := min(len(buf), size, left)
		w.Commit(written, noTime)
		left -= written
	}
	l.AppendExited()
	l.AppendClosed()
}

func consume(b *testing.B, o *Owner) {
	for {
		batch, err := o.Next(context.Background(), 0)
		if err == io.EOF {
			return
		}
		if err != nil || batch.Gap != nil {
			b.Error(batch.Gap, err)
			return
		}
		o.Acknowledge(batch.Events[len(batch.Events)-1].Seq)
	}
}

// cpuSeconds returns the CPU time of this process.
func cpuSeconds() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
