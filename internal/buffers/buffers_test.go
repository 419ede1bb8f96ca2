package buffers

import "testing"

// Every size has a pool of its own, and data takes four fifths of its buffer.
func TestClass(t *testing.T) {
	last, before := 0, &free[0]
	for n := Min; n <= Max; n++ {
		size, pool := class(n)
		if size < n || 5*n < 4*size {
			t.Fatalf("%d bytes take %d", n, size)
		}
		if again, same := class(size); again != size || same != pool {
			t.Fatalf("a buffer of %d bytes belongs to those of %d", size, again)
		}
		if last != 0 && (size == last) != (pool == before) {
			t.Fatalf("the pool of %d bytes also has %d", size, last)
		}
		last, before = size, pool
	}
	if before != &free[pools-1] {
		t.Error("there are more pools than sizes")
	}
}

func TestPut_IgnoresOthers(t *testing.T) {
	Put(nil)
	Put(make([]byte, Min+1))
	Put(Get(Max + 1))
	for n := 1; n < 2*Max; n += 1000 {
		if b := Get(n); len(b) != 0 || cap(b) < n || cap(b) != Size(n) {
			t.Errorf("a buffer for %d bytes has %d of %d", n, len(b), cap(b))
		}
	}
}
