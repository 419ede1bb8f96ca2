package server

import (
	"fmt"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// validateFetch checks what package httpclient does not check itself.
func validateFetch(m *execwirev1.FetchRequest) error {
	if err := validateDuration("timeout", m.GetTimeout()); err != nil {
		return err
	}
	if policy := m.GetRedirectPolicy(); policy < 0 || policy > execwirev1.RedirectPolicy_REDIRECT_POLICY_STOP {
		return invalidField("redirect_policy", fmt.Sprintf("cannot be %d", policy))
	}
	for i, h := range m.GetHeaders() {
		if h.GetValue() != "" && len(h.GetRawValue()) > 0 {
			return invalidField(fmt.Sprintf("headers[%d].raw_value", i), "is there beside value: give one of them")
		}
	}
	return nil
}
