package rendezvous

import (
	"fmt"
	"net/http"
)

// Metric is a figure of /metrics.
type Metric struct {
	Name, Kind, Help string // Kind is gauge or counter; a counter's name ends in _total
	Value            int64
}

// metrics serves the hub's metrics in the Prometheus text format, to
// authenticated clients.
func (h *Hub) metrics(w http.ResponseWriter, r *http.Request) {
	if _, err := h.config.Authenticate(r); err != nil {
		h.Reject(w, r, "", err)
		return
	}
	streams := 0
	for _, route := range h.routes.all() {
		streams += route.streamCount()
	}
	c := h.shared.stats
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	all := []Metric{
		{"connections", "gauge", "Websockets of executors and harnesses.", int64(h.Connections())},
		{"streams", "gauge", "Streams that the hub routes.", int64(streams)},
		{"queued_bytes", "gauge", "Bytes that wait to be sent.", h.shared.queueBudget.inUse()},
		{"frames_total", "counter", "Frames that were routed.", c.frames.Load()},
		{"frame_bytes_total", "counter", "Bytes of frames that were routed.", c.bytes.Load()},
		{"resets_total", "counter", "Streams that the hub ended.", c.resets.Load()},
	}
	if h.config.Metrics != nil {
		all = append(all, h.config.Metrics()...)
	}
	for _, m := range all {
		fmt.Fprintf(w, "# HELP execwire_hub_%[1]s %[3]s\n# TYPE execwire_hub_%[1]s %[2]s\nexecwire_hub_%[1]s %[4]d\n", m.Name, m.Kind, m.Help, m.Value)
	}
	fmt.Fprint(w, "# HELP execwire_hub_dropped_frames_total Frames that were not routed.\n# TYPE execwire_hub_dropped_frames_total counter\n")
	for why, name := range dropNames {
		fmt.Fprintf(w, "execwire_hub_dropped_frames_total{reason=%q} %d\n", name, c.dropped[why].Load())
	}
}
