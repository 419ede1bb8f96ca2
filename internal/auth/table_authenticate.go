package auth

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
)

// Authenticate returns who shows c, and what it may do. A credential that was
// shown has to be right: it is never passed over for another one that is. The
// error is an *[Error].
func (t *Table) Authenticate(c Credentials) (Caller, error) {
	if c.InProcess {
		return t.actFor(Unrestricted(InProcess), []string{"*"}, c.OnBehalfOf)
	}
	if _, listed := t.byName[Relay.Name]; c.Known == Relay && !listed {
		return t.actFor(Unrestricted(Relay), nil, c.OnBehalfOf)
	}
	i, err := t.find(c)
	if err != nil {
		return Caller{}, err
	}
	e := t.entries[i]
	return t.actFor(Caller{Principal: Principal{Name: e.name}, May: e.may}, e.onBehalfOf, c.OnBehalfOf)
}

// admitWebsocket lets [Websocket] in by tokens, with everything unless it is
// listed. It is called before the table is used.
func (t *Table) admitWebsocket(tokens *websocketTokens) {
	t.websocket = tokens
	if _, listed := t.byName[Websocket.Name]; !listed {
		t.byName[Websocket.Name] = len(t.entries)
		t.entries = append(t.entries, entry{name: Websocket.Name, may: Everything})
	}
}

// find returns the entry that c belongs to.
func (t *Table) find(c Credentials) (int, error) {
	if !c.Known.IsZero() {
		if i, listed := t.byName[c.Known.Name]; listed {
			return i, nil
		}
		return 0, failed(KindNotListed, "caller", "the table has no principal %q any more", c.Known.Name)
	}
	certified := -1
	if len(c.Certificates) > 0 {
		var err error
		if certified, err = t.findCertificate(c.Certificates[0]); err != nil {
			return 0, err
		}
	}
	switch {
	case c.Token != "":
		i, err := t.findToken(c.Token)
		if err == nil && certified >= 0 && certified != i {
			err = failed(KindCredentialsDisagree, "caller", "its token is that of %s, its certificate that of %s", t.entries[i].name, t.entries[certified].name)
		}
		return i, err
	case certified >= 0:
		return certified, nil
	case len(c.Certificates) > 0:
		return 0, failed(KindNotListed, "bearer of a certificate", "no principal has %v", certificateSelectors(c.Certificates[0]))
	case c.Peer != nil:
		return t.findPeer(selector{byUser, strconv.FormatUint(uint64(c.Peer.UID), 10)}, "peer of the unix socket", c.PeerRefused)
	case c.Loopback:
		return t.findPeer(selector{byLoopback, "true"}, "caller on loopback", c.PeerRefused)
	}
	return 0, failed(KindCredentialMissing, "caller", "it showed neither a token nor a certificate")
}

// findPeer returns who is accepted without showing anything, unless there is a
// reason to refuse the peer.
func (t *Table) findPeer(s selector, subject string, refused error) (int, error) {
	i, ok := t.by[s]
	switch {
	case !ok:
		return 0, failed(KindCredentialMissing, subject, "it showed no token, and no principal has %s = %s", s.kind, s.value)
	case refused != nil:
		return 0, refused
	}
	return i, nil
}

func (t *Table) findToken(token string) (int, error) {
	if i := FindToken(t.hashes, token); i >= 0 && len(token) >= MinSecretBytes {
		return t.owners[i], nil
	} else if i >= 0 { // of a token_sha256, which does not tell
		return 0, failed(KindTokenInvalid, "bearer of a token", "it is that of %s, but has less than %d bytes", t.entries[t.owners[i]].name, MinSecretBytes)
	}
	i, err := t.findSigned(token)
	if err == nil || t.websocket == nil {
		return i, err
	}
	other := t.websocket.check(token)
	if other == nil {
		return t.byName[Websocket.Name], nil
	}
	if kindOf(err) == KindTokenInvalid { // of the two reasons the one that says more
		err = other
	}
	return 0, err
}

// findSigned returns the entry of a token that is signed.
func (t *Table) findSigned(token string) (int, error) {
	if t.jwt == nil {
		return 0, failed(KindTokenInvalid, "bearer of a token", "no principal has it")
	}
	subject, err := t.jwt.Verify(token)
	if err != nil {
		return 0, err
	}
	if i, ok := t.by[selector{bySubject, subject}]; ok {
		return i, nil
	}
	return 0, failed(KindNotListed, "bearer of a signed token", "no principal has the subject %.140q", subject)
}

// kindOf is that of an *[Error]; 0 of another.
func kindOf(err error) Kind {
	var typed *Error
	if !errors.As(err, &typed) {
		return 0
	}
	return typed.Kind
}

// findCertificate returns the entry that has cert, or -1. The time of a
// certificate may run out while its connection lives.
func (t *Table) findCertificate(cert *x509.Certificate) (int, error) {
	if now := t.now(); now.Before(cert.NotBefore) || now.After(cert.NotAfter) {
		return 0, failed(KindCertificateExpired, "bearer of a certificate", "it is good from %v to %v", cert.NotBefore, cert.NotAfter)
	}
	found := -1
	for _, s := range certificateSelectors(cert) {
		i, ok := t.by[s]
		if ok && found >= 0 && found != i {
			return 0, failed(KindCredentialsDisagree, "bearer of a certificate", "it is both that of %s and that of %s", t.entries[found].name, t.entries[i].name)
		}
		if ok {
			found = i
		}
	}
	return found, nil
}

// certificateSelectors returns everything that a certificate may be listed by.
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

// actFor returns the caller that self is when it acts for the one named so:
// itself, if the name is empty.
func (t *Table) actFor(self Caller, allowed []string, name string) (Caller, error) {
	if name == "" {
		return self, nil
	}
	if err := mayActFor(self, allowed, name); err != nil {
		return Caller{}, err
	}
	if i, listed := t.byName[name]; listed {
		e := t.entries[i]
		return Caller{Principal: Principal{Name: e.name}, Via: self.Principal, May: e.may & self.May}, nil
	}
	return unlisted(self, name), nil
}

func failed(kind Kind, subject, format string, args ...any) error {
	return &Error{Kind: kind, Subject: subject, Err: fmt.Errorf(format, args...)}
}
