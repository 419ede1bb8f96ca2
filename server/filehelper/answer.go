package filehelper

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
)

// answerer makes calls that come as frames.
type answerer struct {
	frames    *frameWriter
	limit     int // of the content of frames
	around    grpc.UnaryServerInterceptor
	methods   map[string]method // by full name; those of streams are not there
	incoming  *descriptorReader
	lent      func(fd int)   // takes descriptors over
	receiving sync.WaitGroup // the calls

	mu      sync.Mutex
	running map[uint64]context.CancelCauseFunc // guarded by mu
}

// method is one, and the service it is of.
type method struct {
	service any
	grpc.MethodDesc
}

// errGivenUp is why a call is ended that nobody waits for.
var errGivenUp = errors.New("the call was given up")

func newAnswerer(conn net.Conn, messageBytes int, lent func(fd int), around []grpc.UnaryServerInterceptor) (*answerer, error) {
	incoming, err := newDescriptorReader(conn)
	if err != nil {
		return nil, err
	}
	frames, err := newFrameWriter(conn)
	if err != nil {
		return nil, err
	}
	return &answerer{
		frames: frames, incoming: incoming, lent: lent, limit: messageBytes + frameRoom, around: chain(around),
		methods: make(map[string]method), running: make(map[uint64]context.CancelCauseFunc),
	}, nil
}

// chain makes one interceptor of many, the outermost of which is the first.
func chain(all []grpc.UnaryServerInterceptor) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		for i := len(all) - 1; i >= 0; i-- {
			around, inner := all[i], handler
			handler = func(ctx context.Context, req any) (any, error) { return around(ctx, req, info, inner) }
		}
		return handler(ctx, req)
	}
}

// registrar registers a service with gRPC and with those who answer frames.
type registrar struct {
	grpc.ServiceRegistrar
	*answerer
}

// RegisterService implements grpc.ServiceRegistrar.
func (r registrar) RegisterService(desc *grpc.ServiceDesc, service any) {
	r.ServiceRegistrar.RegisterService(desc, service)
	for _, m := range desc.Methods {
		r.methods["/"+desc.ServiceName+"/"+m.MethodName] = method{service, m}
	}
}

// serve makes calls until the other end closes the connection, or says what cannot be understood. Then it cancels those
// that are not done, and waits for them.
func (a *answerer) serve() {
	in := bufio.NewReaderSize(a.incoming, bufferSize)
	defer a.incoming.close()
	for {
		f, err := receive(in, a.limit)
		if err != nil || !a.take(f) {
			break
		}
	}
	a.mu.Lock()
	for _, cancel := range a.running {
		cancel(errGivenUp)
	}
	a.mu.Unlock()
	_ = a.frames.close()
	a.receiving.Wait()
}

// take does what a frame asks for, which it is false for if that is not known.
func (a *answerer) take(f frame) bool {
	switch f.kind {
	case kindCancel:
		a.mu.Lock()
		cancel := a.running[f.call]
		a.mu.Unlock()
		if cancel != nil {
			cancel(errGivenUp)
		}
		return true
	case kindLend:
		a.frames.post(a.outcome(f.call, new(emptypb.Empty), a.borrow()))
		return true
	case kindCall:
		ctx, cancel := context.WithCancelCause(context.Background())
		a.mu.Lock()
		a.running[f.call] = cancel
		a.mu.Unlock()
		a.receiving.Go(func() {
			answer := a.answer(ctx, f)
			a.mu.Lock()
			delete(a.running, f.call)
			a.mu.Unlock()
			_ = a.frames.send(ctx, answer, nil) // to nobody if it fails
			cancel(nil)
		})
		return true
	}
	return false
}

// answer makes a call, and is the frame that answers it.
func (a *answerer) answer(ctx context.Context, f frame) []byte {
	response, err := a.call(ctx, f.content)
	return a.outcome(f.call, response, err)
}

// borrow takes the descriptor over that came with the frame that was read last.
func (a *answerer) borrow() error {
	fd, ok := a.incoming.take()
	if !ok {
		return status.Error(codes.ResourceExhausted, "the descriptor was not received")
	}
	a.lent(fd)
	return nil
}

// outcome is the frame that answers a call.
func (a *answerer) outcome(call uint64, response any, err error) []byte {
	if err == nil {
		message, ok := response.(proto.Message)
		if !ok {
			err = status.Error(codes.Internal, "the answer is no message")
		} else {
			size := proto.Size(message)
			answer, failed := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(begun(call, kindAnswer, size), message)
			switch {
			case failed != nil:
				err = status.Errorf(codes.Internal, "the answer cannot be encoded: %v", failed)
			case len(answer)-headBytes > a.limit:
				err = tooLarge(len(answer)-headBytes, a.limit)
			default:
				return finish(answer)
			}
		}
	}
	failure, ok := status.FromError(err)
	if !ok {
		failure = status.FromContextError(err)
	}
	answer, _ := proto.MarshalOptions{}.MarshalAppend(begun(call, kindFailure, 0), failure.Proto()) // the other end says so
	return finish(answer)
}

// call makes the call that the content of a frame is.
func (a *answerer) call(ctx context.Context, content []byte) (any, error) {
	name, md, message, ok := parseCall(content)
	if !ok {
		return nil, status.Error(codes.Internal, "the call is malformed")
	}
	m, ok := a.methods[name]
	if !ok {
		return nil, status.Errorf(codes.Unimplemented, "there is no method %q", name)
	}
	ctx = grpc.NewContextWithServerTransportStream(metadata.NewIncomingContext(ctx, md), answering(name))
	return m.Handler(m.service, ctx, func(into any) error {
		request, ok := into.(proto.Message)
		if !ok {
			return status.Error(codes.Internal, "the request is no message")
		}
		if err := proto.Unmarshal(message, request); err != nil {
			return status.Errorf(codes.Internal, "the request is malformed: %v", err)
		}
		return nil
	}, a.around)
}

// parseCall is the reverse of callFrame.
func parseCall(content []byte) (method string, md metadata.MD, message []byte, ok bool) {
	p := parser{rest: content}
	method = p.text()
	md = metadata.MD{}
	for range p.number() {
		key := p.text()
		for range p.number() {
			md[key] = append(md[key], p.text())
		}
		if p.failed {
			break
		}
	}
	return method, md, p.rest, !p.failed
}

// parser takes a frame apart.
type parser struct {
	rest   []byte
	failed bool
}

// number is a number of bytes or things that are in the rest.
func (p *parser) number() int {
	n, length := binary.Uvarint(p.rest)
	if length <= 0 || n > uint64(len(p.rest)-length) {
		p.failed = true
		return 0
	}
	p.rest = p.rest[length:]
	return int(n) //nolint:gosec // at most the length of the rest
}

func (p *parser) text() string {
	n := p.number()
	text := string(p.rest[:n])
	p.rest = p.rest[n:]
	return text
}

// answering is what interceptors and handlers find the method in. There are no headers.
type answering string

var errNoHeaders = status.Error(codes.Internal, "calls of helpers have no headers")

// Method implements grpc.ServerTransportStream.
func (a answering) Method() string { return string(a) }

// SetHeader implements grpc.ServerTransportStream.
func (a answering) SetHeader(metadata.MD) error { return errNoHeaders }

// SendHeader implements grpc.ServerTransportStream.
func (a answering) SendHeader(metadata.MD) error { return errNoHeaders }

// SetTrailer implements grpc.ServerTransportStream.
func (a answering) SetTrailer(metadata.MD) error { return errNoHeaders }
