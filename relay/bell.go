package relay

// bell wakes those who wait for a change. The zero value is ready; a lock
// protects it.
type bell struct{ waiting chan struct{} }

// wait returns what is closed by the next ring.
func (b *bell) wait() <-chan struct{} {
	if b.waiting == nil {
		b.waiting = make(chan struct{})
	}
	return b.waiting
}

func (b *bell) ring() {
	if b.waiting != nil {
		close(b.waiting)
		b.waiting = nil
	}
}
