package hub

import (
	"errors"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/metrics"
	"github.com/execwire/execwire/relay/preview"
	"github.com/execwire/execwire/relay/rendezvous"
)

// hubMetrics are the metrics of a hub. All methods may be called concurrently.
type hubMetrics struct {
	set                            *metrics.Set
	refusals, limits, authFailures *prometheus.CounterVec
}

// newHubMetrics returns metrics of which those of executors and streams are served from
// begin on.
func newHubMetrics(version string) *hubMetrics {
	set := metrics.New(metrics.Hub, version)
	return &hubMetrics{
		set:      set,
		refusals: set.Counter("execwire_hub_refusals_total"), limits: set.Counter("execwire_hub_limits_hit_total"),
		authFailures: set.Counter("execwire_hub_auth_failures_total"),
	}
}

// begin serves the metrics of the rendezvous and its previews, too.
func (m *hubMetrics) begin(router *rendezvous.Hub, previews *preview.Previews, auditor *rendezvous.Auditor) {
	m.set.OnScrape(func(emit metrics.Emit) {
		now := router.Stats()
		emit.EmitAll("execwire_hub_executors", map[string]float64{"online": float64(now.Online), "offline": float64(now.Offline)})
		emit("execwire_hub_presence_ready", map[bool]float64{true: 1}[now.PresenceReady])
		emit("execwire_hub_connections", float64(now.Connections))
		emit("execwire_hub_streams", float64(now.Streams))
		emit("execwire_hub_queued_bytes", float64(now.QueuedBytes))
		emit("execwire_hub_frames_total", float64(now.Frames))
		emit("execwire_hub_frame_bytes_total", float64(now.FrameBytes))
		emit("execwire_hub_resets_total", float64(now.Resets))
		for reason, n := range now.Dropped {
			emit("execwire_hub_dropped_frames_total", float64(n), reason)
		}
		if auditor != nil {
			emit.EmitAll("execwire_hub_audit_records_total", auditor.Log.Stats().ByResult())
		}
		served := previews.Stats()
		emit("execwire_hub_preview_links", float64(served.Links))
		emit("execwire_hub_preview_connections", float64(served.Connections))
		emit("execwire_hub_preview_requests_total", float64(served.Requests))
	})
}

// refused counts a request that was refused.
func (m *hubMetrics) refused(why *rendezvous.Refusal) { m.refusals.WithLabelValues(why.Code).Inc() }

// limitHit counts a request, a websocket or a stream that was refused because of a limit.
func (m *hubMetrics) limitHit(setting string) { m.limits.WithLabelValues(setting).Inc() }

// notAuthenticated counts a client that was not authenticated.
func (m *hubMetrics) notAuthenticated(err error) {
	if refused, ok := errors.AsType[*auth.Error](err); ok {
		m.authFailures.WithLabelValues(strings.ReplaceAll(refused.Kind.String(), " ", "_")).Inc()
	}
}
