package auth

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
)

// Authenticate returns the caller with credentials c. If several are given, each
// must be valid. The error is an *[Error].
func (t *Table) Authenticate(c Credentials) (Caller, error) {
	if c.InProcess {
		return t.impersonate(Unrestricted(InProcess), []string{"*"}, c.OnBehalfOf)
	}
	if _, listed := t.byName[Relay.Name]; c.Known == Relay && !listed {
		return t.impersonate(Unrestricted(Relay), nil, c.OnBehalfOf)
	}
	i, err := t.findEntry(c)
	if err != nil {
		return Caller{}, err
	}
	e := t.entries[i]
	return t.impersonate(Caller{Principal: Principal{Name: e.name}, May: e.may, RunAs: e.runAs, Record: e.record}, e.onBehalfOf, c.OnBehalfOf)
}

// addWebsocketTokens accepts tokens of [Websocket], as [Unrestricted] unless the
// table lists it. It is called before the table is used.
func (t *Table) addWebsocketTokens(tokens *websocketTokens) {
	t.websocket = tokens
	if _, listed := t.byName[Websocket.Name]; !listed {
		t.byName[Websocket.Name] = len(t.entries)
		t.entries = append(t.entries, entry{name: Websocket.Name, may: Unrestricted(Websocket).May, runAs: Anybody})
	}
}

// findEntry returns the index of the entry that c belongs to.
func (t *Table) findEntry(c Credentials) (int, error) {
	if !c.Known.IsZero() {
		if i, listed := t.byName[c.Known.Name]; listed {
			return i, nil
		}
		return 0, newError(KindNotListed, "caller", "the table no longer has principal %q", c.Known.Name)
	}
	if c.Identities != nil {
		return t.findPerson(c.Identities)
	}
	certEntry := -1
	if len(c.Certificates) > 0 {
		var err error
		if certEntry, err = t.findCertificate(c.Certificates[0]); err != nil {
			return 0, err
		}
	}
	switch {
	case c.Token != "":
		i, err := t.findToken(c.Token)
		if err == nil && certEntry >= 0 && certEntry != i {
			err = newError(KindCredentialsDisagree, "caller", "the token belongs to %s, the certificate to %s", t.entries[i].name, t.entries[certEntry].name)
		}
		return i, err
	case certEntry >= 0:
		return certEntry, nil
	case len(c.Certificates) > 0:
		return 0, newError(KindNotListed, "bearer of a certificate", "no principal has %v", certificateSelectors(c.Certificates[0]))
	case c.Peer != nil:
		return t.findPeer(userSelector(c.Peer.UID), "peer of the unix socket", c.PeerRefused)
	case c.Loopback:
		return t.findPeer(selector{byLoopback, "true"}, "caller on loopback", c.PeerRefused)
	}
	return 0, newError(KindCredentialMissing, "caller", "neither a token nor a certificate")
}

// findPeer returns the entry for callers without credentials, unless the peer is
// rejected.
func (t *Table) findPeer(s selector, subject string, refused error) (int, error) {
	i, ok := t.bySelector[s]
	switch {
	case !ok:
		return 0, newError(KindCredentialMissing, subject, "no token, and no principal has %s = %s", s.kind, s.value)
	case refused != nil:
		return 0, refused
	}
	return i, nil
}

func (t *Table) findToken(token string) (int, error) {
	if i := FindToken(t.hashes, token); i >= 0 && len(token) >= MinSecretBytes {
		return t.owners[i], nil
	} else if i >= 0 { // of a token_sha256, which does not tell
		return 0, newError(KindTokenInvalid, "bearer of a token", "it belongs to %s, but has less than %d bytes", t.entries[t.owners[i]].name, MinSecretBytes)
	}
	i, err := t.findSigned(token)
	if err == nil || t.websocket == nil {
		return i, err
	}
	other := t.websocket.check(token)
	if other == nil {
		return t.byName[Websocket.Name], nil
	}
	if errorKind(err) == KindTokenInvalid { // the more specific error
		err = other
	}
	return 0, err
}

// findSigned returns the entry of a signed token.
func (t *Table) findSigned(token string) (int, error) {
	if t.jwt == nil {
		return 0, newError(KindTokenInvalid, "bearer of a token", "no principal has it")
	}
	subject, err := t.jwt.Verify(token)
	if err != nil {
		return 0, err
	}
	if i, ok := t.bySelector[selector{bySubject, subject}]; ok {
		return i, nil
	}
	return 0, newError(KindNotListed, "bearer of a signed token", "no principal has the subject %.140q", subject)
}

// errorKind returns the kind of an *[Error]; 0 for other errors.
func errorKind(err error) Kind {
	if typed, ok := errors.AsType[*Error](err); ok {
		return typed.Kind
	}
	return 0
}

// findCertificate returns the entry that has cert, or -1. A certificate may
// expire during its connection.
func (t *Table) findCertificate(cert *x509.Certificate) (int, error) {
	if now := t.now(); now.Before(cert.NotBefore) || now.After(cert.NotAfter) {
		return 0, newError(KindCertificateExpired, "bearer of a certificate", "it is valid from %v to %v", cert.NotBefore, cert.NotAfter)
	}
	return t.findOne("bearer of a certificate", certificateSelectors(cert))
}

// findPerson returns the entry of a person by the identities at an OpenID provider.
func (t *Table) findPerson(identities []string) (int, error) {
	const subject = "person at the OpenID provider"
	var selectors []selector
	for _, identity := range identities {
		selectors = append(selectors, selector{byIdentity, identity})
	}
	i, err := t.findOne(subject, selectors)
	if err == nil && i < 0 {
		err = newError(KindNotListed, subject, "no principal has %.200q", identities)
	}
	if failed, ok := errors.AsType[*Error](err); ok {
		failed.ForCaller = fmt.Sprintf("%v: the hub's operator has to list one of %.200q in oidc_identities of one principal", failed.Err, identities)
	}
	return i, err
}

// findOne returns the entry that has one of the selectors of a caller, or -1. It is an error
// if several have.
func (t *Table) findOne(subject string, selectors []selector) (int, error) {
	found := -1
	for _, s := range selectors {
		i, ok := t.bySelector[s]
		if ok && found >= 0 && found != i {
			return 0, newError(KindCredentialsDisagree, subject, "it belongs to both %s and %s", t.entries[found].name, t.entries[i].name)
		}
		if ok {
			found = i
		}
	}
	return found, nil
}

// certificateSelectors returns the selectors that match a certificate.
func certificateSelectors(cert *x509.Certificate) []selector {
	sum := sha256.Sum256(cert.Raw)
	texts := []string{"sha256:" + hex.EncodeToString(sum[:])}
	for _, uri := range cert.URIs {
		texts = append(texts, "uri:"+uri.String())
	}
	for _, name := range cert.DNSNames {
		texts = append(texts, "dns:"+name)
	}
	if cert.Subject.CommonName != "" {
		texts = append(texts, "cn:"+cert.Subject.CommonName)
	}
	var selectors []selector
	for _, text := range texts {
		if value, problem := certificateSelector(text); problem == "" {
			selectors = append(selectors, selector{byCertificate, value})
		}
	}
	return selectors
}

// impersonate returns self acting on behalf of name, or self if name is empty.
func (t *Table) impersonate(self Caller, allowed []string, name string) (Caller, error) {
	if name == "" {
		return self, nil
	}
	if err := checkImpersonation(self, allowed, name); err != nil {
		return Caller{}, err
	}
	if i, listed := t.byName[name]; listed {
		e := t.entries[i]
		return Caller{Principal: Principal{Name: e.name}, Via: self.Principal, May: e.may & self.May, RunAs: e.runAs.and(self.RunAs), Record: e.record || self.Record}, nil
	}
	return impersonated(self, name), nil
}

func newError(kind Kind, subject, format string, args ...any) error {
	return &Error{Kind: kind, Subject: subject, Err: fmt.Errorf(format, args...)}
}
