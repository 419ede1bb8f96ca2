package daemon

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/execwire/execwire/gateway/wsserver"
)

const metricsPath = "/metrics"

// metrics serves the totals of the configuration and those of the program in the formats of
// Prometheus, to every authenticated caller.
func (c *clients) metrics() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	registry.MustRegister(c.totals...)
	served := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != metricsPath {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		call, err := c.beginHTTP(r, c.authenticator.admitHTTP)
		if err != nil {
			wsserver.RefusalOf(err, false).Answer(w)
			return
		}
		defer call.end()
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET,HEAD")
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		served.ServeHTTP(w, r)
	})
}

// totals are the server's own metrics.
func (d *Daemon) totals() []prometheus.Collector {
	build := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "execwire", Name: "build_info", Help: "1, with the version.",
		ConstLabels: prometheus.Labels{"version": d.opts.Version}})
	build.Set(1)
	return []prometheus.Collector{
		build,
		gauge("processes_running", "Processes that have not closed.", func() int64 { return int64(d.sessions.Totals().Running) }),
		gauge("sessions", "Sessions.", func() int64 { return int64(d.sessions.Totals().Sessions) }),
		gauge("retained_bytes", "What counts for retained_output_bytes_total.", func() int64 { return d.sessions.Totals().RetainedBytes }),
	}
}

func gauge(name, help string, value func() int64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "execwire", Name: name, Help: help},
		func() float64 { return float64(value()) })
}
