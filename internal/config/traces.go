package config

import (
	"net/url"
	"strconv"
	"strings"
)

// tracesProblems returns the errors of the settings of traces.
func tracesProblems(endpoint, ratio string) (problems []error) {
	if u, err := url.Parse(endpoint); endpoint != "" && (err != nil || !isHTTP(u) || strings.Trim(u.Path, "/") != "") {
		problems = append(problems, invalid("otlp_endpoint", endpoint, "write http://HOST:PORT or https://HOST:PORT of a collector that accepts OTLP over gRPC"))
	}
	if r, err := strconv.ParseFloat(ratio, 64); err != nil || !(r >= 0 && r <= 1) {
		problems = append(problems, invalid("trace_ratio", ratio, "write a number from 0 to 1, for example 0.01"))
	}
	return problems
}

// TraceRatioValue returns the ratio of a valid trace_ratio.
func TraceRatioValue(text string) float64 {
	ratio, _ := strconv.ParseFloat(text, 64)
	return ratio
}
