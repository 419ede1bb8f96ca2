package tracing

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
)

// Limits of the export. A tracer holds at most a queue and a batch of spans.
const (
	queueSpans    = 2048
	batchSpans    = 512
	batchDelay    = time.Second
	exportTimeout = 10 * time.Second
	flushTimeout  = 2 * time.Second
)

// exportMethod is the RPC of a collector.
const exportMethod = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"

// errNotFlushed is the cause of the end of an export when the tracer is closed.
var errNotFlushed = errors.New("the collector did not take the last spans in time")

// Close sends the spans that have ended, for at most two seconds, and releases what the
// tracer uses. Spans that end later are lost. It must be called once.
func (t *Tracer) Close() {
	if t == nil {
		return
	}
	close(t.closing)
	late := time.AfterFunc(flushTimeout, func() { t.cancel(errNotFlushed) })
	t.worker.Wait()
	late.Stop()
	t.cancel(nil)
	_ = t.conn.Close() // fails only if it is closed
}

// export sends spans until the tracer is closed.
func (t *Tracer) export() {
	for more := true; more; {
		var batch [][]byte
		if batch, more = t.collect(); len(batch) > 0 {
			t.send(batch)
		}
	}
}

// collect waits for a span, and then a little for others. more is false after the last
// batch of a tracer that is being closed.
func (t *Tracer) collect() (batch [][]byte, more bool) {
	select {
	case span := <-t.queue:
		batch = append(batch, span)
	case <-t.closing:
	}
	full := time.NewTimer(batchDelay)
	defer full.Stop()
	for len(batch) < batchSpans {
		select {
		case span := <-t.queue:
			batch = append(batch, span)
			continue
		case <-full.C:
			return batch, true
		case <-t.closing: // what the queue still has is sent without waiting
		}
		select {
		case span := <-t.queue:
			batch = append(batch, span)
		default:
			return batch, false
		}
	}
	return batch, true
}

// send sends a batch. While there is no connection it waits for one, and the queue fills.
func (t *Tracer) send(batch [][]byte) {
	ctx, cancel := context.WithTimeout(metadata.NewOutgoingContext(t.running, t.headers), exportTimeout)
	defer cancel()
	var response []byte
	err := t.conn.Invoke(ctx, exportMethod, encodeRequest(t.resource, batch), &response,
		grpc.ForceCodecV2(rawCodec{}), grpc.WaitForReady(true))
	lost := min(rejectedSpans(response), uint64(len(batch)))
	if err != nil {
		lost = uint64(len(batch))
	}
	t.exported.Add(uint64(len(batch)) - lost)
	if lost > 0 {
		t.dropped.Add(lost)
		t.log.Warn("failed to send spans to the collector of traces", slog.Uint64("lost", lost), slog.Any("error", err))
	}
}

// rawCodec passes encoded messages on: a []byte is a request, and a *[]byte a response.
type rawCodec struct{}

// Marshal implements encoding.CodecV2.
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

// Unmarshal implements encoding.CodecV2.
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// Name implements encoding.CodecV2: messages are protobuf.
func (rawCodec) Name() string { return "proto" }
