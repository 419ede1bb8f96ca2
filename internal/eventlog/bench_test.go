package eventlog

import (
	"context"
	"io"
	"syscall"
	"testing"
	"unsafe"
)

// BenchmarkLogThroughput is the path of every byte without the system calls:
// one writer, one owner that acknowledges every batch, each in its goroutine.
// Beside MB/s it reports CPU seconds per GiB, which is steadier.
func BenchmarkLogThroughput(b *testing.B) {
	for _, c := range []struct {
		name string
		size int // of each read; 0: as much as the buffer takes
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
			go speak(l, size, b.N)
			consume(b, o)
			b.ReportMetric((cpuSeconds()-before)/(float64(size)*float64(b.N)/(1<<30)), "cpu-s/GiB")
		})
	}
}

// BenchmarkLogSteps is the same in one goroutine: no wake-ups.
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
				w.Commit(n)
				batch, ok, _ := o.TryNext(0)
				if !ok {
					b.Fatal("no batch")
				}
				o.Acknowledge(batch.Events[len(batch.Events)-1].Seq)
			}
		})
	}
}

// BenchmarkFloor is what the blocks alone cost: the memory, zeroed.
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

// speak says size bytes times n through buffers.
func speak(l *Log, size, n int) {
	w := l.Writer(Stdout)
	for left := size * n; left > 0; {
		buf := w.Buffer()
		if buf == nil {
			w.WaitSpace(context.Background())
			continue
		}
		said := min(len(buf), size, left)
		w.Commit(said)
		left -= said
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

// cpuSeconds is the CPU time of this process so far.
func cpuSeconds() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
