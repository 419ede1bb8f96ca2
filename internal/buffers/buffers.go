// Package buffers pools byte slices, so that what carries much data makes no garbage.
package buffers

import (
	"math/bits"
	"sync"
)

// There are four sizes per power of two, so that data takes at least four fifths of the
// smallest buffer that has space for it.
const (
	// Min and Max are the smallest and the largest size in bytes of a pooled buffer.
	Min = 4 << 10
	Max = 160 << 10

	minShift = 10 // Min is 4 << minShift
	pools    = 22
)

// free has the pools, by size.
var free [pools]sync.Pool

// class returns the smallest size of at least n bytes, which are from Min to Max, and its
// pool.
func class(n int) (size int, pool *sync.Pool) {
	if n == Min {
		return Min, &free[0]
	}
	shift := bits.Len(uint(n-1)) - 3
	quarters := (n-1)>>shift + 1 // 5 to 8
	return quarters << shift, &free[4*(shift-minShift)+quarters-4]
}

// Get returns an empty slice with a capacity of at least n bytes, whose content is
// undefined. It is from a pool if n is from Min to Max.
func Get(n int) []byte {
	if n < Min || n > Max {
		return make([]byte, 0, n)
	}
	size, pool := class(n)
	if b, ok := pool.Get().(*[]byte); ok {
		return (*b)[:0]
	}
	return make([]byte, 0, size)
}

// Size returns the capacity of Get(n).
func Size(n int) int {
	if n >= Min && n <= Max {
		n, _ = class(n)
	}
	return n
}

// Put returns a slice of Get, which must not be used any more, to its pool. It ignores
// others, except parts of them.
func Put(b []byte) {
	if n := cap(b); n >= Min && n <= Max {
		if size, pool := class(n); size == n {
			pool.Put(&b)
		}
	}
}
