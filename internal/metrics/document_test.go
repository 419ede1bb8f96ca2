package metrics

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

// generated are the files that are made from the lists.
var generated = []struct {
	path string
	make func() string
}{
	{"../../docs/metrics.md", document},
	{"../../deploy/monitoring/alerts.yaml", alertRules},
	{"../../deploy/monitoring/dashboard-server.json", func() string { return dashboard("execwire", "execwire_build_info", Server) }},
	{"../../deploy/monitoring/dashboard-hub.json", func() string { return dashboard("execwire-hub", "execwire_hub_build_info", Hub) }},
}

// TestGenerated checks that the files are those of the lists. EXECWIRE_UPDATE_DOCS=1 writes
// them.
func TestGenerated(t *testing.T) {
	for _, file := range generated {
		want := []byte(file.make())
		if got, err := os.ReadFile(file.path); err == nil && bytes.Equal(got, want) {
			continue
		}
		if os.Getenv("EXECWIRE_UPDATE_DOCS") == "" {
			t.Errorf("%s is out of date: run EXECWIRE_UPDATE_DOCS=1 go test ./internal/metrics", file.path)
		} else if err := os.WriteFile(file.path, want, 0o644); err != nil {
			t.Error(err)
		}
	}
}

// TestLists_Lint checks names, types and helps as promtool check metrics does.
func TestLists_Lint(t *testing.T) {
	var text strings.Builder
	seen := map[string]bool{}
	for _, m := range slices.Concat(Server, Hub) {
		if seen[m.Name] || m.Group == "" || m.Title == "" || !strings.HasSuffix(m.Help, ".") || (m.Type == Histogram) != (len(m.Buckets) > 0) {
			t.Errorf("%+v is there twice, has no group, title or sentence as help, or buckets that do not fit", m)
		}
		seen[m.Name] = true
		fmt.Fprintf(&text, "# HELP %[1]s %[2]s\n# TYPE %[1]s %[3]s\n", m.Name, m.Help, m.Type)
		labels := make([]string, len(m.Labels))
		for i, label := range m.Labels {
			labels[i] = label + `="x"`
		}
		suffixes := []string{""}
		if m.Type == Histogram {
			suffixes = []string{"_sum", "_count", "_bucket"}
		}
		for _, suffix := range suffixes {
			if suffix == "_bucket" {
				labels = append(labels, `le="+Inf"`)
			}
			fmt.Fprintf(&text, "%s%s{%s} 1\n", m.Name, suffix, strings.Join(labels, ","))
		}
	}
	problems, err := promlint.New(strings.NewReader(text.String())).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

var (
	metricName    = regexp.MustCompile(`\b(?:execwire|process|go)_[a-z_]+`)
	metricLabels  = regexp.MustCompile(`\b((?:execwire|process|go)_[a-z_]+)\{([^}]*)\}`)
	labelMatcher  = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)\s*"`)
	groupedLabels = regexp.MustCompile(`by \(([a-z_, ]*)\)`)
)

// listed returns the metric of a name in an expression, which for a histogram has a suffix.
func listed(name string) (Metric, bool) {
	for _, m := range All() {
		if name == m.Name && m.Type != Histogram {
			return m, true
		}
		if suffix, ok := strings.CutPrefix(name, m.Name); ok && m.Type == Histogram && slices.Contains([]string{"_bucket", "_sum", "_count"}, suffix) {
			return m, true
		}
	}
	return Metric{}, false
}

// checkExpression checks that an expression names only metrics and labels of the lists.
func checkExpression(t *testing.T, where, expr string) {
	t.Helper()
	target := []string{"job", "instance", "le"} // labels that Prometheus adds
	names := metricName.FindAllString(expr, -1)
	if len(names) == 0 {
		t.Errorf("%s: %s names no metric", where, expr)
	}
	var labels []string
	for _, name := range names {
		m, ok := listed(name)
		if !ok {
			t.Errorf("%s: %s names %s, which no list has", where, expr, name)
		}
		labels = append(labels, m.Labels...)
	}
	for _, use := range metricLabels.FindAllStringSubmatch(expr, -1) {
		m, _ := listed(use[1])
		for _, matcher := range labelMatcher.FindAllStringSubmatch(use[2], -1) {
			if !slices.Contains(slices.Concat(m.Labels, target), matcher[1]) {
				t.Errorf("%s: %s has no label %s", where, use[1], matcher[1])
			}
		}
	}
	for _, group := range groupedLabels.FindAllStringSubmatch(expr, -1) {
		for label := range strings.SplitSeq(group[1], ", ") {
			if !slices.Contains(slices.Concat(labels, target), label) {
				t.Errorf("%s: no metric of %s has the label %s", where, expr, label)
			}
		}
	}
}

func TestAlerts_NameListedMetrics(t *testing.T) {
	for _, group := range alerts {
		for _, rule := range group.rules {
			checkExpression(t, rule.name, rule.expr)
			for _, template := range regexp.MustCompile(`\$labels\.([a-z_]+)`).FindAllStringSubmatch(rule.summary, -1) {
				if !strings.Contains("job instance", template[1]) && !strings.Contains(labelsOf(rule.expr), template[1]) {
					t.Errorf("%s: the summary names the label %s, which no metric of its expression has", rule.name, template[1])
				}
			}
		}
	}
}

// labelsOf returns the labels of all metrics in an expression.
func labelsOf(expr string) string {
	var labels []string
	for _, name := range metricName.FindAllString(expr, -1) {
		m, _ := listed(name)
		labels = append(labels, m.Labels...)
	}
	return strings.Join(labels, " ")
}

// TestDashboards_ShowEveryMetric reads the files themselves.
func TestDashboards_ShowEveryMetric(t *testing.T) {
	shown := map[string]bool{}
	for _, file := range generated[2:] {
		text, err := os.ReadFile(file.path)
		if err != nil {
			t.Fatal(err)
		}
		var board struct {
			Panels []struct {
				Title   string
				Targets []struct{ Expr string }
			}
		}
		if err := json.Unmarshal(text, &board); err != nil {
			t.Fatal(err)
		}
		for _, panel := range board.Panels {
			for _, target := range panel.Targets {
				checkExpression(t, file.path+": "+panel.Title, target.Expr)
				for _, name := range metricName.FindAllString(target.Expr, -1) {
					m, _ := listed(name)
					shown[m.Name] = true
				}
			}
		}
	}
	for _, m := range All() {
		if !shown[m.Name] {
			t.Errorf("%s is on no dashboard", m.Name)
		}
	}
}

// alertRules is the file with the alert rules.
func alertRules() string {
	var b strings.Builder
	b.WriteString("# Alert rules of Prometheus for execwire: docs/metrics.md explains them. Generated by\n" +
		"# EXECWIRE_UPDATE_DOCS=1 go test ./internal/metrics\ngroups:\n")
	for _, group := range alerts {
		fmt.Fprintf(&b, "  - name: %s\n    rules:\n", group.group)
		for _, rule := range group.rules {
			fmt.Fprintf(&b, "      - alert: %s\n        expr: %s\n        for: %s\n        labels:\n          severity: %s\n"+
				"        annotations:\n          summary: %s\n          description: %s\n",
				rule.name, quoted(rule.expr), rule.lasts, rule.severity, quoted(rule.summary), quoted(rule.fix))
		}
	}
	return b.String()
}

// quoted returns a string of YAML.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// groupsOf returns the groups of metrics in their order.
func groupsOf(list []Metric) (groups []string) {
	for _, m := range list {
		if !slices.Contains(groups, m.Group) {
			groups = append(groups, m.Group)
		}
	}
	return groups
}

// selector selects the targets that the variables of a dashboard name.
const selector = `{job=~"$job", instance=~"$instance"}`

// panelColumns is how many panels are beside each other at most, and panelHeight how high
// they are.
const panelColumns, panelHeight = 4, 7

// dashboard is a dashboard of Grafana with a panel for every metric of a list.
func dashboard(title, info string, list []Metric) string {
	list = slices.Concat(list, Collected)
	var panels []map[string]any
	y := 0
	add := func(panel map[string]any, x, w, h int) {
		panel["id"], panel["gridPos"] = len(panels)+1, map[string]int{"x": x, "y": y, "w": w, "h": h}
		panels = append(panels, panel)
	}
	for _, group := range groupsOf(list) {
		add(map[string]any{"type": "row", "title": group, "collapsed": false, "panels": []any{}}, 0, 24, 1)
		y++
		for _, row := range rowsOf(slices.DeleteFunc(slices.Clone(list), func(m Metric) bool { return m.Group != group })) {
			x := 0
			for _, m := range row {
				width := 24 * widthOf(m) / widthOf(row...)
				add(panelOf(m), x, width, panelHeight)
				x += width
			}
			y += panelHeight
		}
	}
	variable := func(name, query string) map[string]any {
		return map[string]any{"name": name, "type": "query", "datasource": dataSource, "query": query, "definition": query,
			"refresh": 2, "multi": true, "includeAll": true, "current": map[string]any{"text": "All", "value": "$__all"}}
	}
	text, err := json.MarshalIndent(map[string]any{
		"title": title, "uid": title, "tags": []string{"execwire"}, "schemaVersion": 39, "editable": true, "refresh": "30s",
		"time": map[string]string{"from": "now-1h", "to": "now"}, "panels": panels,
		"templating": map[string]any{"list": []any{
			map[string]any{"name": "datasource", "type": "datasource", "query": "prometheus"},
			variable("job", "label_values("+info+", job)"),
			variable("instance", "label_values("+info+`{job=~"$job"}, instance)`),
		}},
	}, "", "  ")
	if err != nil {
		panic(err)
	}
	return string(text) + "\n"
}

var dataSource = map[string]string{"type": "prometheus", "uid": "${datasource}"}

// rowsOf distributes metrics evenly over rows.
func rowsOf(list []Metric) (rows [][]Metric) {
	left := widthOf(list...)
	for count := (left + panelColumns - 1) / panelColumns; count > 0; count-- {
		n := 1
		for n < len(list) && widthOf(list[:n]...)*count < left {
			n++
		}
		rows, left, list = append(rows, list[:n]), left-widthOf(list[:n]...), list[n:]
	}
	return rows
}

// widthOf returns how many columns metrics take.
func widthOf(list ...Metric) (columns int) {
	for _, m := range list {
		if columns++; byMethod(m) {
			columns += 2
		}
	}
	return columns
}

// byMethod reports whether a metric has a series for each method of an API.
func byMethod(m Metric) bool {
	return slices.Contains(m.Labels, "api") && slices.Contains(m.Labels, "method")
}

// panelOf returns the panel of a metric, without its place.
func panelOf(m Metric) map[string]any {
	legend := "{{instance}}"
	by := "instance"
	if len(m.Labels) > 0 {
		by, legend = strings.Join(m.Labels, ", "), "{{"+strings.Join(m.Labels, "}} {{")+"}}"
		legend = strings.Replace(legend, "{{verified}}", "(verified: {{verified}})", 1)
	}
	targets := []map[string]any{}
	add := func(expr, legend string) {
		if byMethod(m) { // the ten largest, with short names
			expr = `label_replace(topk(10, ` + expr + `), "method", "$1", "method", "execwire\\.v1\\.(.*)")`
		}
		targets = append(targets, map[string]any{"refId": string(rune('A' + len(targets))), "expr": expr, "legendFormat": legend, "datasource": dataSource})
	}
	switch sum := "sum by (" + by + ") ("; {
	case m.Type == Counter && len(m.Labels) > 0: // without what has never happened
		add(sum+"rate("+m.Name+selector+"[$__rate_interval])) and "+sum+m.Name+selector+") > 0", legend)
	case m.Type == Counter:
		add(sum+"rate("+m.Name+selector+"[$__rate_interval]))", legend)
	case m.Type == Gauge:
		add(sum+m.Name+selector+")", legend)
	case m.Type == Histogram:
		for _, quantile := range []string{"0.5", "0.99"} {
			add("histogram_quantile("+quantile+", sum by ("+by+", le) (rate("+m.Name+"_bucket"+selector+"[$__rate_interval])))", legend+" "+quantile)
		}
	}
	fill, shown := 10, map[string]any{"showLegend": true, "displayMode": "list", "placement": "bottom", "calcs": []string{}}
	if byMethod(m) {
		fill, shown = 0, map[string]any{"showLegend": true, "displayMode": "table", "placement": "right", "calcs": []string{"mean", "max"}, "sortBy": "Mean", "sortDesc": true}
	}
	return map[string]any{"type": "timeseries", "title": m.Title, "description": m.Name + ": " + m.Help, "datasource": dataSource, "targets": targets,
		"fieldConfig": map[string]any{"overrides": []any{}, "defaults": map[string]any{"unit": unitOf(m), "min": 0, "noValue": "none",
			"custom": map[string]any{"fillOpacity": fill}}},
		"options": map[string]any{"legend": shown, "tooltip": map[string]any{"mode": "multi", "sort": "desc"}}}
}

// unitOf returns the unit of Grafana for a metric.
func unitOf(m Metric) string {
	name := strings.TrimSuffix(m.Name, "_total")
	switch {
	case m.Name == "process_cpu_seconds_total":
		return "percentunit"
	case strings.HasSuffix(name, "_bytes") && m.Type == Counter:
		return "binBps"
	case strings.HasSuffix(name, "_bytes"):
		return "bytes"
	case strings.HasSuffix(name, "_seconds"):
		return "s"
	case m.Type == Counter:
		return "ops"
	}
	return "short"
}

// document is docs/metrics.md.
func document() string {
	var b strings.Builder
	b.WriteString(`# Metrics

The server and the hub serve metrics in the formats of Prometheus at ` + "`/metrics`" + `. This file is generated by ` + "`EXECWIRE_UPDATE_DOCS=1 go test ./internal/metrics`" + ` from the lists in [internal/metrics](../internal/metrics/list.go), as the dashboards and alert rules are: they name no metric that is not there.

## Scrape

` + "`/metrics`" + ` is on every HTTP listener of the server (` + "`tcp://`, `tls://`, `ws://`, `wss://`, `unix://`" + `), and on those of the hub. It needs a credential as every other request, of a principal with any permission. The least is view, so give Prometheus a principal of its own:

` + "```toml" + `
[[principal]]
name = "prometheus"
token_file = "/etc/execwire/prometheus.token"
allow = ["view"]
` + "```" + `

` + "```yaml" + `
scrape_configs:
  - job_name: execwire
    scheme: https
    authorization: {credentials_file: /etc/prometheus/execwire.token}
    static_configs:
      - targets: ["build-1.example.com:7420"]
` + "```" + `

No label has the name of a principal, or the id or name of a process, session, executor or file. All values of labels are names in the code, so the number of series is bounded: the label ` + "`method`" + ` has the methods of the contract that were called, ` + "`limit`" + ` the [settings](configuration.md) and limits of the system that were hit. A counter is on the page from the start if the values of its labels are known in advance, and otherwise from the first event.

The values of ` + "`api`" + ` are ` + "`grpc`" + ` (through a hub, too), ` + "`jsonrpc`, `connect`" + ` (Connect, gRPC-Web and JSON), ` + "`http`" + ` (files over HTTP) and ` + "`local`" + ` (the program that embeds the server).

A scrape takes time in proportion to the number of processes. Output of processes costs one addition for each stream of a message; nothing is counted by byte.

`)
	writeTables(&b, "Server", Server)
	writeTables(&b, "Hub", Hub)
	b.WriteString("## Both\n\nThe libraries of Prometheus add metrics of the process (`process_…`) and of Go (`go_…`). The dashboards use these:\n\n")
	writeTable(&b, Collected)
	b.WriteString(`
## Dashboards

[dashboard-server.json](../deploy/monitoring/dashboard-server.json) and [dashboard-hub.json](../deploy/monitoring/dashboard-hub.json) are dashboards of Grafana: import them, or put them into a directory of a dashboard provider. They have one panel for each metric, in the groups above; its description has the name of the metric. Their variables select a data source, jobs and instances. Panels of counters with labels show what has happened since the start of the program: "none" is nothing.

The packages have them, with the alert rules, in ` + "`/usr/share/execwire/monitoring`" + ` and ` + "`/usr/share/execwire-hub/monitoring`" + `, the archives for Linux in ` + "`monitoring`" + `.

A server and an executor with work that hits limits:

![The dashboard of the server](images/dashboard-server.png)

Their hub:

![The dashboard of the hub](images/dashboard-hub.png)

[tools/dashboards/draw](../tools/dashboards/draw) has made these pictures: it starts the programs, gives them work for minutes, and has Prometheus scrape them. Then it reads the two files, asks Prometheus their queries, and draws the answers in Chromium, with the panels, colours and units of Grafana 10.4 (` + "`@grafana/ui`" + `, ` + "`@grafana/data`" + `), but without the server of Grafana and the controls of its pages. ` + "`make dashboards`" + ` makes them again.

## Alerts

[alerts.yaml](../deploy/monitoring/alerts.yaml) has alert rules; name it in ` + "`rule_files`" + ` of Prometheus. ` + "`make test-deploy`" + ` checks it with promtool.

| alert | severity | when | what to do |
| --- | --- | --- | --- |
`)
	for _, group := range alerts {
		for _, rule := range group.rules {
			when := "`" + strings.ReplaceAll(rule.expr, "|", "\\|") + "`"
			if rule.lasts != "0m" {
				when += " for " + rule.lasts
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", rule.name, rule.severity, when, rule.fix)
		}
	}
	return b.String()
}

// writeTables writes the metrics of a program, by group.
func writeTables(b *strings.Builder, program string, list []Metric) {
	fmt.Fprintf(b, "## %s\n\n", program)
	for _, group := range groupsOf(list) {
		fmt.Fprintf(b, "%s:\n\n", group)
		writeTable(b, slices.DeleteFunc(slices.Clone(list), func(m Metric) bool { return m.Group != group }))
		b.WriteByte('\n')
	}
}

func writeTable(b *strings.Builder, list []Metric) {
	b.WriteString("| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n")
	for _, m := range list {
		labels := ""
		if len(m.Labels) > 0 {
			labels = "`" + strings.Join(m.Labels, "`, `") + "`"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", m.Name, m.Type, labels, m.Help)
	}
}
