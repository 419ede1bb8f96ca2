package main

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

func TestMemory_ManyChanges_TrimOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trims := 0
		m := &memory{trim: func() { trims++ }}
		for range 100 {
			m.changed()
		}
		time.Sleep(trimInterval)
		synctest.Wait()
		if trims != 1 {
			t.Errorf("trimmed %d times after the changes, want once", trims)
		}
		time.Sleep(time.Hour)
		if trims != 1 {
			t.Errorf("trimmed %d times without a change", trims-1)
		}
		m.changed()
		time.Sleep(trimInterval)
		synctest.Wait()
		if trims != 2 {
			t.Errorf("trimmed %d times after another change, want 2", trims)
		}
	})
}

func TestMemory_Trim_ReturnsGarbage(t *testing.T) {
	const size = 64 << 20
	m := tuneMemory()
	garbage := make([]byte, size)
	for i := range garbage {
		garbage[i] = 1
	}
	before := heapResident()
	runtime.KeepAlive(garbage)
	garbage = nil
	m.trim()
	runtime.KeepAlive(m)
	if after := heapResident(); before-after < size*9/10 {
		t.Errorf("the heap uses %d MiB after %d MiB became garbage; before it used %d", after>>20, size>>20, before>>20)
	}
}

// heapResident returns the resident size of the heap.
func heapResident() int64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapSys - stats.HeapReleased)
}

func TestMemoryShare_IsHalf(t *testing.T) {
	const mib = 1 << 20
	for most, want := range map[uint64][2]int64{
		64 * mib:   {36 * mib, 4 * mib},
		512 * mib:  {288 * mib, 32 * mib},
		8192 * mib: {4128 * mib, 32 * mib},
	} {
		if limit, slack := memoryShare(most); limit != want[0] || slack != want[1] {
			t.Errorf("of %d bytes: %d and %d, want %d", most, limit, slack, want)
		}
	}
}
