package gateway

import (
	"slices"
	"sync"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/gateway/call"
	"github.com/execwire/execwire/gateway/files"
	"github.com/execwire/execwire/gateway/httpcalls"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// connection is what the requests and the feed of one client use. They run in
// goroutines of their own, which Spawn starts.
type connection struct {
	*lifetime
	config     Config
	gateLimits gateLimits

	processes    execwirev1.ProcessServiceClient
	sessions     execwirev1.SessionServiceClient
	environments execwirev1.EnvironmentServiceClient
	ports        execwirev1.PortServiceClient

	out           *outgoing
	answering     sync.WaitGroup // requests that are not answered
	files         *files.Service
	http          *httpcalls.Service
	watches       *call.Watches
	outputAnswers *call.Limiter // for process output and lists

	table    processTable
	marks    *watermarks
	delivery eventDelivery

	// Of the receiving goroutine until a request is dispatched; read-only afterwards.
	session     *session
	environment *environmentInfo
	subscribed  []string      // notifications that the client subscribed to
	live        chan struct{} // closed by initialized
}

func newConnection(life *lifetime, config Config, limits gateLimits, answers call.Shared, upstream grpc.ClientConnInterface) *connection {
	c := &connection{
		lifetime: life, config: config, gateLimits: limits,
		processes:     execwirev1.NewProcessServiceClient(upstream),
		sessions:      execwirev1.NewSessionServiceClient(upstream),
		environments:  execwirev1.NewEnvironmentServiceClient(upstream),
		ports:         execwirev1.NewPortServiceClient(upstream),
		out:           &outgoing{conn: life.conn, limit: config.Outgoing},
		outputAnswers: call.NewLimiter(answers),
		table:         processTable{records: make(map[string]*process)},
		live:          make(chan struct{}),
	}
	c.watches = call.NewWatches(c, config.Watches)
	c.files = files.New(execwirev1.NewFileSystemServiceClient(upstream), c, c.watches, answers)
	c.marks = newWatermarks(life, &c.table)
	c.delivery = eventDelivery{life: life, table: &c.table, out: c.out, marks: c.marks}
	return c
}

func (c *connection) isSubscribed(name string) bool { return slices.Contains(c.subscribed, name) }

const (
	// maxContent is the largest content of an answer, as in the reference.
	maxContent = 512 << 20
	// aroundContent is the largest size of an answer beside its content.
	aroundContent = 64 << 10
)

// ContentLimit implements [call.Connection]: the limit of the protocol, or less if the
// transport accepts only smaller messages.
func (c *connection) ContentLimit() int {
	bounded, ok := c.conn.(jsonrpc.Bounded)
	if !ok {
		return maxContent
	}
	return min(max(bounded.MessageLimit()-aroundContent, 0)/4*3, maxContent)
}

// Send implements [call.Connection].
func (c *connection) Send(appendTo func(dst []byte) []byte) error {
	err := c.out.sendOne(appendTo)
	if err != nil {
		c.end(ending{closeInternal, "a notification could not be sent", err})
	}
	return err
}
