package server

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/process"
)

// MinRetainedOutputBytes is the least output that a process may ask to be kept
// of it.
const MinRetainedOutputBytes = 64 << 10

// validateLimits checks what a process may be limited to. The field is where
// the limits are in their message.
func validateLimits(field string, m *execwirev1.ProcessLimits) error {
	if err := validateTimeout(field+".timeout", m.GetTimeout()); err != nil {
		return err
	}
	if err := validateTimeout(field+".no_output_timeout", m.GetNoOutputTimeout()); err != nil {
		return err
	}
	var seen []execwirev1.LimitedResource
	for i, limit := range m.GetResourceLimits() {
		at := fmt.Sprintf("%s.resource_limits[%d]", field, i)
		if err := validateResourceLimit(at, limit, seen); err != nil {
			return err
		}
		seen = append(seen, limit.GetResource())
	}
	if nice := m.GetNice(); nice < -process.MaxNice || nice > process.MaxNice {
		return invalidField(field+".nice", fmt.Sprintf("is %d: use %d to %d", nice, -process.MaxNice, process.MaxNice))
	}
	if m != nil && m.RetainedOutputBytes != nil && m.GetRetainedOutputBytes() < MinRetainedOutputBytes {
		return invalidField(field+".retained_output_bytes",
			fmt.Sprintf("is %d: use at least %d, or leave it out", m.GetRetainedOutputBytes(), MinRetainedOutputBytes))
	}
	return nil
}

// validateTimeout accepts an absent duration, and one above 0.
func validateTimeout(field string, d *durationpb.Duration) error {
	if err := validateDuration(field, d); err != nil {
		return err
	}
	if d != nil && d.AsDuration() == 0 {
		return invalidField(field, "is 0: leave it out for no timeout")
	}
	return nil
}

func validateResourceLimit(field string, m *execwirev1.ResourceLimit, seen []execwirev1.LimitedResource) error {
	resource := m.GetResource()
	switch {
	case resource == 0:
		return invalidField(field+".resource", "is missing: say what to limit")
	case toResource(resource) == 0:
		return invalidField(field+".resource", fmt.Sprintf("cannot be %d", resource))
	case slices.Contains(seen, resource):
		return invalidField(field+".resource", fmt.Sprintf("is %v again: limit each resource at most once", resource))
	case m.Hard != nil && m.GetHard() < m.GetSoft():
		return invalidField(field+".hard", fmt.Sprintf("is %d: use at least soft, %d", m.GetHard(), m.GetSoft()))
	}
	return nil
}

// toResource translates a resource; 0 is none that is known here.
func toResource(r execwirev1.LimitedResource) process.Resource {
	switch r {
	case execwirev1.LimitedResource_LIMITED_RESOURCE_CPU_SECONDS:
		return process.ResourceCPUSeconds
	case execwirev1.LimitedResource_LIMITED_RESOURCE_FILE_BYTES:
		return process.ResourceFileBytes
	case execwirev1.LimitedResource_LIMITED_RESOURCE_DATA_BYTES:
		return process.ResourceDataBytes
	case execwirev1.LimitedResource_LIMITED_RESOURCE_STACK_BYTES:
		return process.ResourceStackBytes
	case execwirev1.LimitedResource_LIMITED_RESOURCE_CORE_BYTES:
		return process.ResourceCoreBytes
	case execwirev1.LimitedResource_LIMITED_RESOURCE_USER_PROCESSES:
		return process.ResourceUserProcesses
	case execwirev1.LimitedResource_LIMITED_RESOURCE_OPEN_FILES:
		return process.ResourceOpenFiles
	case execwirev1.LimitedResource_LIMITED_RESOURCE_LOCKED_BYTES:
		return process.ResourceLockedBytes
	case execwirev1.LimitedResource_LIMITED_RESOURCE_ADDRESS_SPACE_BYTES:
		return process.ResourceAddressSpaceBytes
	default:
		return 0
	}
}

// setLimits gives a spec the limits of a request that passed validation.
func setLimits(spec *process.Spec, m *execwirev1.ProcessLimits) {
	if m == nil {
		return
	}
	spec.Timeout = m.GetTimeout().AsDuration()
	spec.NoOutputTimeout = m.GetNoOutputTimeout().AsDuration()
	spec.Nice = int(m.GetNice())
	for _, limit := range m.GetResourceLimits() {
		hard := limit.GetSoft()
		if limit.Hard != nil {
			hard = limit.GetHard()
		}
		spec.ResourceLimits = append(spec.ResourceLimits,
			process.Limit{Resource: toResource(limit.GetResource()), Soft: limit.GetSoft(), Hard: hard})
	}
	if m.RetainedOutputBytes != nil {
		spec.Output.RetainedBytes = int(min(uint64(spec.Output.RetainedBytes), m.GetRetainedOutputBytes()))
	}
}

// limitFields are the parts of a spec that a request has among its limits.
var limitFields = []string{"timeout", "no_output_timeout", "resource_limits", "nice"}
