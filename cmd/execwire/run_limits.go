package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/config"
)

// buildLimits makes the limits of a process; without any it returns nil.
func buildLimits(flags runFlags) (*execwirev1.ProcessLimits, error) {
	var limits execwirev1.ProcessLimits
	var err error
	if limits.Timeout, err = limitDuration("--timeout", flags.timeout, flags.hasTimeout); err != nil {
		return nil, err
	}
	if limits.NoOutputTimeout, err = limitDuration("--no-output-timeout", flags.silence, flags.hasSilence); err != nil {
		return nil, err
	}
	if flags.nice != 0 {
		limits.Nice = &flags.nice
	}
	for _, text := range flags.limits {
		limit, err := parseLimit(text)
		if err != nil {
			return nil, err
		}
		limits.ResourceLimits = append(limits.ResourceLimits, limit)
	}
	if limits.Timeout == nil && limits.NoOutputTimeout == nil && limits.Nice == nil && limits.ResourceLimits == nil {
		return nil, nil
	}
	return &limits, nil
}

func limitDuration(flag string, d time.Duration, given bool) (*durationpb.Duration, error) {
	if !given {
		return nil, nil
	}
	if d <= 0 {
		return nil, fmt.Errorf("%s is %v: it has to be more than 0", flag, d)
	}
	return durationpb.New(d), nil
}

// limitNames are the names of resources on the command line: those of the
// contract, in small letters and with hyphens.
func limitNames() map[string]execwirev1.LimitedResource {
	names := map[string]execwirev1.LimitedResource{}
	for value, name := range execwirev1.LimitedResource_name {
		if value != 0 {
			name = strings.ToLower(strings.TrimPrefix(name, "LIMITED_RESOURCE_"))
			names[strings.ReplaceAll(name, "_", "-")] = execwirev1.LimitedResource(value)
		}
	}
	return names
}

// parseLimit reads NAME=SOFT or NAME=SOFT:HARD.
func parseLimit(text string) (*execwirev1.ResourceLimit, error) {
	name, values, ok := strings.Cut(text, "=")
	names := limitNames()
	resource, known := names[name]
	if !ok || !known {
		return nil, fmt.Errorf("--limit %q: write NAME=SOFT or NAME=SOFT:HARD, where NAME is one of %s",
			text, strings.Join(slices.Sorted(maps.Keys(names)), ", "))
	}
	inBytes := strings.HasSuffix(name, "-bytes")
	soft, hard, both := strings.Cut(values, ":")
	limit := &execwirev1.ResourceLimit{Resource: resource}
	var err error
	if limit.Soft, err = parseLimitValue(soft, inBytes); err != nil {
		return nil, fmt.Errorf("--limit %s: %w", name, err)
	}
	if !both {
		return limit, nil
	}
	value, err := parseLimitValue(hard, inBytes)
	if err != nil {
		return nil, fmt.Errorf("--limit %s: %w", name, err)
	}
	limit.Hard = &value
	return limit, nil
}

func parseLimitValue(text string, inBytes bool) (uint64, error) {
	if text == "unlimited" {
		return math.MaxUint64, nil
	}
	if inBytes {
		n, err := config.ParseBytes(text)
		return uint64(n), err
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number; write for example 100, or unlimited", text)
	}
	return n, nil
}
