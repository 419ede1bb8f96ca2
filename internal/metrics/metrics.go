// Package metrics has the lists of all metrics of the server and of the hub, and serves
// them in the formats of Prometheus. A metric that is in no list cannot be made: the
// lists are also the source of docs/metrics.md and of what deploy/monitoring contains.
package metrics

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"
)

// Type is the type of a metric.
type Type string

// The types.
const (
	Counter   Type = "counter"
	Gauge     Type = "gauge"
	Histogram Type = "histogram"
)

// Metric describes a metric.
type Metric struct {
	// Name is the full name, Help one sentence.
	Name, Help string
	// Title is the heading of its panel.
	Title string
	// Type is the type.
	Type Type
	// Labels are the labels, none of which has more values than the code has names for.
	Labels []string
	// Buckets are the upper bounds of a histogram, in the unit of its name.
	Buckets []float64
	// Group is the heading under which documents and dashboards show it.
	Group string
}

// Emit reports a value of a gauge or counter of the list, with the values of its labels in
// their order. It panics for any other name, or number of labels.
type Emit func(name string, value float64, labels ...string)

// Set is the metrics of a running program. All methods may be called concurrently.
type Set struct {
	registry *prometheus.Registry
	list     []Metric
	source   atomic.Pointer[func(Emit)]
}

// New returns the metrics of a list, with those of the process and of Go. The version is
// the label of the metric whose name ends in build_info.
func New(list []Metric, version string) *Set {
	s := &Set{registry: prometheus.NewRegistry(), list: list}
	s.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		&scrape{set: s, version: version})
	return s
}

// Counter returns a counter of the list. It panics for another name, or if it is called
// twice for one.
func (s *Set) Counter(name string) *prometheus.CounterVec {
	m := s.find(name, Counter)
	counter := prometheus.NewCounterVec(prometheus.CounterOpts{Name: m.Name, Help: m.Help}, m.Labels)
	s.registry.MustRegister(counter)
	return counter
}

// Gauge is Counter for a gauge.
func (s *Set) Gauge(name string) *prometheus.GaugeVec {
	m := s.find(name, Gauge)
	gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: m.Name, Help: m.Help}, m.Labels)
	s.registry.MustRegister(gauge)
	return gauge
}

// Histogram is Counter for a histogram.
func (s *Set) Histogram(name string) *prometheus.HistogramVec {
	m := s.find(name, Histogram)
	histogram := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: m.Name, Help: m.Help, Buckets: m.Buckets}, m.Labels)
	s.registry.MustRegister(histogram)
	return histogram
}

func (s *Set) find(name string, kind Type) Metric {
	i := slices.IndexFunc(s.list, func(m Metric) bool { return m.Name == name && m.Type == kind })
	if i < 0 {
		panic(fmt.Sprintf("metrics: the list has no %s %s", kind, name))
	}
	return s.list[i]
}

// OnScrape makes f report values that are only computed when they are asked for. It
// replaces what was set before. f must not block, and is called concurrently.
func (s *Set) OnScrape(f func(Emit)) { s.source.Store(&f) }

// Handler serves the metrics to every caller, as text or protobuf. Package promhttp would
// do the same, with compression, and takes 200 KB of a program.
func (s *Set) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		families, err := s.registry.Gather()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		format := expfmt.Negotiate(r.Header)
		w.Header().Set("Content-Type", string(format))
		encoder := expfmt.NewEncoder(w, format)
		for _, family := range families {
			if encoder.Encode(family) != nil {
				return // the client is gone
			}
		}
	})
}

// scrape is the collector of what OnScrape reports.
type scrape struct {
	set     *Set
	version string
}

// Describe implements prometheus.Collector: it describes nothing, because which metrics
// are computed is known when they are.
func (c *scrape) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *scrape) Collect(out chan<- prometheus.Metric) {
	emit := func(name string, value float64, labels ...string) {
		kind := prometheus.GaugeValue
		i := slices.IndexFunc(c.set.list, func(m Metric) bool { return m.Name == name })
		if i < 0 {
			panic("metrics: the list has no " + name)
		}
		m := c.set.list[i]
		if m.Type == Counter {
			kind = prometheus.CounterValue
		}
		out <- prometheus.MustNewConstMetric(prometheus.NewDesc(m.Name, m.Help, m.Labels, nil), kind, value, labels...)
	}
	for _, m := range c.set.list {
		if slices.Equal(m.Labels, []string{"version"}) {
			emit(m.Name, 1, c.version)
		}
	}
	if source := c.set.source.Load(); source != nil {
		(*source)(emit)
	}
}

// EmitAll reports one value for each value of a metric's only label, in the order of the
// values.
func (e Emit) EmitAll(name string, values map[string]float64) {
	for _, label := range slices.Sorted(maps.Keys(values)) {
		e(name, values[label], label)
	}
}
