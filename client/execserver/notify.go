package execserver

// handler is what is called with the parameters of one kind of notification.
type handler struct {
	take func(l *link, params []byte) error
}

// subscribe has take called with the parameters of each notification with the
// method, in order, by the receiving goroutine: it must neither block nor keep the
// parameters. An error that it returns ends the connection as one with a server
// that breaks the contract. cancel may be called by anybody, also by take.
func (c *Conn) subscribe(method string, take func(params []byte) error) (cancel func()) {
	return c.subscribeOn(method, func(_ *link, params []byte) error { return take(params) })
}

// subscribeOn is subscribe for who wants to know over which link it came.
func (c *Conn) subscribeOn(method string, take func(l *link, params []byte) error) (cancel func()) {
	h := &handler{take: take}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.handlers[method] == nil {
		c.handlers[method] = make(map[*handler]struct{})
	}
	c.handlers[method][h] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.handlers[method], h)
		if len(c.handlers[method]) == 0 {
			delete(c.handlers, method)
		}
	}
}

// notify hands a notification to those who want it. One that nobody wants means
// nothing: the server may be newer.
func (c *Conn) notify(l *link, method string, params []byte) error {
	c.mu.Lock()
	taking := make([]*handler, 0, 1)
	for h := range c.handlers[method] {
		taking = append(taking, h)
	}
	c.mu.Unlock()
	for _, h := range taking {
		if err := h.take(l, params); err != nil {
			return err
		}
	}
	return nil
}
