package inproc

import (
	"io"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// ReceiveEach calls handle with each message of a stream, one after the other, until the call has ended, or
// handle returns an error, after which the caller has to end the context of the call. It returns that error,
// or what RecvMsg returns at the end. No other goroutine may receive meanwhile.
//
// Over a [Channel], handle runs in the goroutine of the handler that sends, which blocks meanwhile, instead
// of waking another one for each message. ReceiveEach returns when handle does not run any more.
func ReceiveEach[Req, Res any](stream grpc.BidiStreamingClient[Req, Res], handle func(*Res) error) error {
	if typed, ok := stream.(*grpc.GenericClientStream[Req, Res]); ok {
		if cs, ok := typed.ClientStream.(*clientStream); ok {
			return cs.receiveEach(func(m proto.Message) error { return handle(any(m).(*Res)) })
		}
	}
	for {
		m, err := stream.Recv()
		if err == nil {
			err = handle(m)
		}
		if err != nil {
			return err
		}
	}
}

func (cs *clientStream) receiveEach(handle func(proto.Message) error) error {
	var refused error // guarded by call.sending
	take := func(m proto.Message) {
		if refused == nil {
			if refused = handle(m); refused != nil {
				cs.fail(refused)
			}
		}
	}
	for !cs.call.handOver(take) {
		m, err := cs.call.nextResponse()
		if err != nil {
			cs.fail(err)
			return err
		}
		if take(m); refused != nil {
			return refused
		}
	}
	<-cs.call.done
	cs.call.sending <- struct{}{} // take does not run any more
	<-cs.call.sending
	if refused != nil {
		return refused
	}
	err := cs.call.status.Err()
	if err == nil {
		err = io.EOF
	}
	cs.fail(err)
	return err
}

// handOver makes the handler call take with its further messages, unless it is sending one, or one is in
// the queue.
func (c *call) handOver(take func(proto.Message)) bool {
	select {
	case c.sending <- struct{}{}:
	default:
		return false
	}
	defer func() { <-c.sending }()
	if len(c.responses) > 0 {
		return false
	}
	c.take = take
	return true
}

// respond sends a message of the handler, and reports whether the call has not ended. It blocks while the
// queue is full, or take runs.
func (c *call) respond(m proto.Message) bool {
	if c.sending == nil {
		return c.send(c.responses, m)
	}
	c.sending <- struct{}{}
	defer func() { <-c.sending }()
	if c.take == nil {
		return c.send(c.responses, m)
	}
	if c.hasEnded() {
		return false
	}
	c.take(m)
	return !c.hasEnded()
}

func (c *call) hasEnded() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}
