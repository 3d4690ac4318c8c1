package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// user is one line of the token file.
type user struct {
	name   string
	groups string
}

// testUsers are the users tests act as. Only admin may do anything from the start; a test
// gives the others what it needs by Roles and bindings.
var testUsers = []user{
	{"admin", "system:masters"},
	{"viewer", ""},
	{"team-lead", ""},
	{"nobody", ""},
}

// componentUsers are the identities of the components, so that the audit log tells them apart.
// The controller manager runs all controllers as itself and therefore needs every right.
var componentUsers = []user{
	{"system:" + schedulerName, ""},
	{"system:" + controllerManagerName, "system:masters"},
}

// auditPolicy records who did what and when, once a request is answered (a watch also when it
// begins to answer), without bodies.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
`

// files are the paths of everything the components read or write.
type files struct{ dir string }

func (f files) path(name string) string    { return filepath.Join(f.dir, name) }
func (f files) etcdData() string           { return f.path("etcd-data") }
func (f files) auditPolicy() string        { return f.path("audit-policy.yaml") }
func (f files) auditLog() string           { return f.path("audit.log") }
func (f files) tokens() string             { return f.path("tokens.csv") }
func (f files) certificate() string        { return f.path("apiserver.crt") }
func (f files) certificateKey() string     { return f.path("apiserver.key") }
func (f files) serviceAccountKey() string  { return f.path("service-account.key") }
func (f files) serviceAccountPub() string  { return f.path("service-account.pub") }
func (f files) schedulerConfig() string    { return f.path("scheduler.yaml") }
func (f files) kubeconfig(s string) string { return f.path(s + ".kubeconfig") }

// write makes every file the components need and returns each user's token.
func (f files) write(server string) (map[string]string, error) {
	tokens := map[string]string{}
	var tokenLines strings.Builder
	for _, u := range append(append([]user{}, testUsers...), componentUsers...) {
		secret := make([]byte, 16)
		if _, err := rand.Read(secret); err != nil {
			return nil, err
		}
		tokens[u.name] = hex.EncodeToString(secret)
		fmt.Fprintf(&tokenLines, "%s,%s,%s,%q\n", tokens[u.name], u.name, u.name, u.groups)
	}
	authority, err := f.writeCertificate()
	if err != nil {
		return nil, fmt.Errorf("cannot make the server's certificate: %w", err)
	}
	if err := f.writeServiceAccountKeys(); err != nil {
		return nil, fmt.Errorf("cannot make the service account keys: %w", err)
	}
	contents := map[string]string{
		f.tokens():              tokenLines.String(),
		f.auditPolicy():         auditPolicy,
		f.auditLog():            "",
		f.kubeconfig("clients"): kubeconfig(server, authority, testUsers, tokens),
		f.schedulerConfig():     schedulerConfig(f.kubeconfig(schedulerName)),
	}
	for _, u := range componentUsers {
		name := f.kubeconfig(strings.TrimPrefix(u.name, "system:"))
		contents[name] = kubeconfig(server, authority, []user{u}, tokens)
	}
	for path, text := range contents {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	return tokens, nil
}

// kubeconfig has one context a user, each named as its user; the first is the current one.
func kubeconfig(server string, authority []byte, users []user, tokens map[string]string) string {
	var text strings.Builder
	fmt.Fprintf(&text, `apiVersion: v1
kind: Config
current-context: %s
clusters:
- name: real
  cluster: {server: %q, certificate-authority-data: %s}
users:
`, users[0].name, server, base64.StdEncoding.EncodeToString(authority))
	for _, u := range users {
		fmt.Fprintf(&text, "- {name: %q, user: {token: %s}}\n", u.name, tokens[u.name])
	}
	text.WriteString("contexts:\n")
	for _, u := range users {
		fmt.Fprintf(&text, "- {name: %q, context: {cluster: real, user: %q}}\n", u.name, u.name)
	}
	return text.String()
}

// schedulerConfig lifts the client limits of kube-scheduler (50 requests a second by default):
// with them a comparison would measure the limit.
func schedulerConfig(kubeconfig string) string {
	return fmt.Sprintf(`apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection:
  kubeconfig: %q
  contentType: application/vnd.kubernetes.protobuf
  qps: 5000
  burst: 10000
`, kubeconfig)
}

// writeCertificate makes an authority and a server certificate for loopback and returns the
// authority's, PEM.
func (f files) writeCertificate() ([]byte, error) {
	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	authority := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "gpudeck test authority"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().AddDate(1, 0, 0),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	authorityDER, err := x509.CreateCertificate(rand.Reader, authority, authority, authorityKey.Public(), authorityKey)
	if err != nil {
		return nil, err
	}
	serverKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	server := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: apiserverName},
		NotBefore:    authority.NotBefore,
		NotAfter:     authority.NotAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:     []string{"localhost"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	serverDER, err := x509.CreateCertificate(rand.Reader, server, authority, serverKey.Public(), authorityKey)
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalECPrivateKey(serverKey)
	if err != nil {
		return nil, err
	}
	if err := writePEM(f.certificate(), "CERTIFICATE", serverDER); err != nil {
		return nil, err
	}
	if err := writePEM(f.certificateKey(), "EC PRIVATE KEY", keyDER); err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authorityDER}), nil
}

// writeServiceAccountKeys makes the pair that kube-apiserver signs and checks tokens with.
func (f files) writeServiceAccountKeys() error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	if err := writePEM(f.serviceAccountKey(), "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key)); err != nil {
		return err
	}
	return writePEM(f.serviceAccountPub(), "PUBLIC KEY", public)
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
