// Package presence stores the presence of executors in an embedded NATS server,
// in a key-value bucket of JetStream, which the nodes of a hub share if their
// servers form a cluster.
package presence

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/execwire/execwire/relay/rendezvous"
)

const (
	bucket = "executors"
	// startTimeout bounds the start of the server. In a cluster it waits for a
	// quorum.
	startTimeout = 2 * time.Minute
	// markerLifetime is how long deletions are remembered.
	markerLifetime = time.Minute
	// replicas is how many nodes of a cluster store a record: three, so that one
	// may fail.
	replicas = 3
)

// Options say where records are stored. The zero value stores them in memory, for
// a single node.
type Options struct {
	// Node is the name of this node, unique in a cluster. Empty means the
	// hostname.
	Node string
	// Directory is the server's directory, for its exclusive use. It is created
	// if it does not exist. Empty stores records in memory.
	Directory string
	// Cluster joins other nodes; nil means a single node.
	Cluster *Cluster
}

// Cluster describes the nodes of a hub that share their records.
type Cluster struct {
	// Listen is where the servers of other nodes connect, as HOST:PORT.
	Listen string
	// Routes are the Listen addresses of other nodes.
	Routes []string
	// Secret authenticates nodes to each other; it is the same for all.
	Secret string
}

// NATS is a [rendezvous.Presence] in an embedded NATS server. Methods may be
// called concurrently.
type NATS struct {
	server         *server.Server
	conn           *nats.Conn
	bucket         jetstream.KeyValue
	stream         jetstream.JetStream
	config         Options
	health         *health
	stop           context.CancelCauseFunc // stops monitor; nil if not running
	monitoring     sync.WaitGroup
	storeDirectory string
	tempDir        string   // removed by Close; empty if none
	lock           *os.File // of the directory, locked while open
}

var _ rendezvous.Presence = (*NATS)(nil)

// errStart means that the embedded server did not start in time.
var errStart = errors.New("the embedded NATS server is not ready: in a cluster it waits for a quorum")

// Open starts the server, which listens only for other nodes, and not at all
// without a cluster. It waits until records can be stored, until ctx ends, and at
// most two minutes. The result must be closed.
func Open(ctx context.Context, o Options) (_ *NATS, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, errStart)
	defer cancel()
	n := &NATS{config: o, health: newHealth()}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("failed to open the presence of executors: %w", err), n.Close())
		}
	}()
	settings, err := n.settings(o)
	if err != nil {
		return nil, err
	}
	if n.server, err = server.NewServer(settings); err != nil {
		return nil, err
	}
	n.server.Start()
	if !n.server.ReadyForConnections(timeLeft(ctx)) {
		return nil, errStart
	}
	if n.conn, err = nats.Connect("", nats.InProcessServer(n.server), nats.UserInfo(settings.Username, settings.Password), nats.MaxReconnects(-1)); err != nil {
		return nil, err
	}
	if n.stream, err = jetstream.New(n.conn); err != nil {
		return nil, err
	}
	if n.bucket, err = openBucket(ctx, n.stream, bucketOf(o)); err != nil {
		return nil, err
	}
	guarding, end := context.WithCancelCause(context.Background())
	n.stop = end
	n.monitoring.Go(func() { n.monitor(guarding) })
	return n, nil
}

// timeLeft returns the time until the deadline of ctx.
func timeLeft(ctx context.Context) time.Duration {
	end, _ := ctx.Deadline()
	return time.Until(end)
}

func (n *NATS) settings(o Options) (*server.Options, error) {
	directory, err := n.lockDirectory(o.Directory)
	if err != nil {
		return nil, err
	}
	n.storeDirectory = directory
	if o.Node == "" {
		name, err := os.Hostname()
		if err != nil {
			return nil, err
		}
		o.Node = name
	}
	settings := &server.Options{
		ServerName: o.Node, DontListen: true, JetStream: true, StoreDir: directory, JetStreamMaxStore: maxStore,
		NoSigs: true, NoLog: true, DisableJetStreamBanner: true,
	}
	if o.Cluster != nil {
		return settings, o.Cluster.join(settings)
	}
	return settings, nil
}

func bucketOf(o Options) jetstream.KeyValueConfig {
	config := jetstream.KeyValueConfig{
		Bucket: bucket, Description: "the executors of an execwire hub", History: 1,
		Storage: jetstream.FileStorage, Replicas: 1, LimitMarkerTTL: markerLifetime,
	}
	if o.Directory == "" {
		config.Storage = jetstream.MemoryStorage
	}
	if o.Cluster != nil && len(o.Cluster.Routes)+1 >= replicas {
		config.Replicas = replicas
	}
	return config
}

// A cluster without a leader does not answer requests.
const (
	retryInterval = 250 * time.Millisecond
	answerTimeout = 3 * time.Second
)

var errClosed = errors.New("the presence of executors is closed")

var errNoAnswer = errors.New("no node has answered")

// openBucket retries until it succeeds: a cluster elects a leader first.
func openBucket(ctx context.Context, stream jetstream.JetStream, config jetstream.KeyValueConfig) (jetstream.KeyValue, error) {
	retry := time.NewTicker(retryInterval)
	defer retry.Stop()
	for {
		opened, err := tryBucket(ctx, stream, config)
		if err == nil {
			return opened, nil
		}
		select {
		case <-retry.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

func tryBucket(ctx context.Context, stream jetstream.JetStream, config jetstream.KeyValueConfig) (jetstream.KeyValue, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTimeout, errNoAnswer)
	defer cancel()
	return stream.CreateOrUpdateKeyValue(ctx, config)
}

// Get implements [rendezvous.Presence].
func (n *NATS) Get(ctx context.Context, executor string) (rendezvous.Record, uint64, error) {
	var entry jetstream.KeyValueEntry
	err := n.ask(ctx, func(ctx context.Context) (err error) {
		if entry, err = n.bucket.Get(ctx, executor); errors.Is(err, jetstream.ErrKeyNotFound) {
			entry, err = nil, nil
		}
		return err
	})
	if err != nil || entry == nil {
		return rendezvous.Record{}, 0, err
	}
	record, err := decode(entry)
	return record, entry.Revision(), err
}

func decode(entry jetstream.KeyValueEntry) (record rendezvous.Record, err error) {
	if err := json.Unmarshal(entry.Value(), &record); err != nil {
		return rendezvous.Record{}, fmt.Errorf("failed to read the record of executor %s: %w", entry.Key(), err)
	}
	return record, nil
}

// Put implements [rendezvous.Presence].
func (n *NATS) Put(ctx context.Context, record rendezvous.Record, revision uint64) (uint64, error) {
	text, err := json.Marshal(record)
	if err != nil {
		return 0, err
	}
	var stored uint64
	err = n.write(ctx, func(ctx context.Context) (err error) {
		if revision == 0 {
			stored, err = n.bucket.Create(ctx, record.Executor, text)
		} else {
			stored, err = n.bucket.Update(ctx, record.Executor, text, revision)
		}
		return translateError(err)
	})
	return stored, err
}

// Delete implements [rendezvous.Presence].
func (n *NATS) Delete(ctx context.Context, executor string, revision uint64) error {
	return n.write(ctx, func(ctx context.Context) error {
		return translateError(n.bucket.Purge(ctx, executor, jetstream.LastRevision(revision), jetstream.PurgeTTL(markerLifetime)))
	})
}

// translateError returns [rendezvous.ErrChanged] for a conflict, other errors
// unchanged.
func translateError(err error) error {
	refused, ok := errors.AsType[*jetstream.APIError](err)
	if errors.Is(err, jetstream.ErrKeyExists) || ok && (refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant) {
		return rendezvous.ErrChanged
	}
	return err
}

// Watch implements [rendezvous.Presence].
func (n *NATS) Watch(ctx context.Context, change func(rendezvous.Change), caughtUp func()) error {
	restarted, _ := n.health.get()
	watch, err := n.bucket.WatchAll(ctx)
	if err != nil {
		return err
	}
	defer watch.Stop()
	for {
		select {
		case entry, more := <-watch.Updates():
			switch {
			case !more:
				return watchEnded(ctx)
			case entry == nil:
				caughtUp()
			case entry.Key() == probeKey:
			case entry.Operation() != jetstream.KeyValuePut:
				change(rendezvous.Change{Record: rendezvous.Record{Executor: entry.Key()}, Revision: entry.Revision(), Deleted: true})
			default:
				record, err := decode(entry)
				if err != nil {
					return err
				}
				change(rendezvous.Change{Record: record, Revision: entry.Revision()})
			}
		case <-restarted:
			return watchEnded(ctx)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// watchEnded returns why a watch ended: because of ctx, whose end also ends the
// subscription, or because of the server.
func watchEnded(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errWatchEnded
}

var errWatchEnded = errors.New("the embedded NATS server has ended the watch")

// Close stops the server and waits for it.
func (n *NATS) Close() error {
	if n.stop != nil {
		n.stop(errClosed)
		n.monitoring.Wait()
	}
	if n.conn != nil {
		n.conn.Close()
	}
	if n.server != nil {
		n.server.Shutdown()
		n.server.WaitForShutdown()
	}
	if n.lock != nil {
		_ = n.lock.Close()
	}
	if n.tempDir != "" {
		return os.RemoveAll(n.tempDir)
	}
	return nil
}
