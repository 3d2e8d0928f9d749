// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package readapi

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newKey returns a private key.
func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// certify returns a new certificate of a key, in PEM.
func certify(t *testing.T, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano())}
	text, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: text})
}

// publication is a publisher with its inputs and outputs.
type publication struct {
	*testing.T
	*publisher
	clock       *clocktesting.FakeClock
	leases      coordinationclient.LeaseInterface
	certificate []byte
	address     schedulerapi.Address
	writes      func() int
}

// inputs are what the publisher reads.
type inputs struct{ publication *publication }

func (i inputs) address() schedulerapi.Address { return i.publication.address }

func (i inputs) CurrentCertKeyContent() (certificate, key []byte) {
	return i.publication.certificate, nil
}

func newPublication(t *testing.T) *publication {
	client := fake.NewClientset()
	p := &publication{
		T: t, clock: clocktesting.NewFakeClock(time.Unix(1000, 0)), certificate: certify(t, newKey(t)),
		leases:  client.CoordinationV1().Leases(schedulerapi.Namespace),
		address: schedulerapi.Address{Host: "cp1", BindAddress: "127.0.0.1", Port: 10262, Version: "v1"},
		writes: func() (count int) {
			for _, action := range client.Actions() {
				if action.Matches("create", "leases") || action.Matches("update", "leases") {
					count++
				}
			}
			return count
		},
	}
	p.publisher = &publisher{
		leases: p.leases, name: "cp1-10262", clock: p.clock, self: inputs{p}, certificate: inputs{p},
	}
	return p
}

// published returns the content of the lease.
func (p *publication) published() (schedulerapi.Address, *coordinationv1.Lease) {
	p.Helper()
	lease, err := p.leases.Get(p.Context(), "cp1-10262", metav1.GetOptions{})
	if err != nil {
		p.Fatal(err)
	}
	address, published, err := schedulerapi.ReadAddress(lease)
	if err != nil || !published {
		p.Fatalf("%v: %v", lease.Annotations, err)
	}
	return address, lease
}

func TestPublishesAndRenewsTheAddress(t *testing.T) {
	p := newPublication(t)
	p.step(t.Context())
	address, lease := p.published()
	want := p.address
	want.PublicKey = address.PublicKey
	if diff := cmp.Diff(want, address); diff != "" || len(address.PublicKey) != len("sha256:")+64 {
		t.Errorf("%q (-want +got):\n%s", address.PublicKey, diff)
	}
	if schedulerapi.Expired(lease, p.clock.Now().Add(schedulerapi.LeaseDuration)) ||
		!schedulerapi.Expired(lease, p.clock.Now().Add(schedulerapi.LeaseDuration+time.Second)) {
		t.Errorf("the lease counts for another time: %v", lease.Spec)
	}
	for range 4 { // within the renewal
		p.clock.Step(publishInterval)
		p.step(t.Context())
	}
	if p.writes() != 1 {
		t.Errorf("%d writes though nothing has changed", p.writes())
	}
	p.clock.Step(publishInterval)
	p.step(t.Context())
	if _, lease := p.published(); p.writes() != 2 || !lease.Spec.RenewTime.Time.Equal(p.clock.Now()) {
		t.Errorf("%d writes, renewed at %v", p.writes(), lease.Spec.RenewTime)
	}
}

// The publisher publishes a certificate with another key, and a change of the leader, at once. A
// certificate renewed with the same key is no change.
func TestPublishesChangesAtOnce(t *testing.T) {
	p := newPublication(t)
	key := newKey(t)
	p.certificate = certify(t, key)
	p.step(t.Context())
	before, _ := p.published()

	p.certificate = certify(t, key)
	p.step(t.Context())
	if p.writes() != 1 {
		t.Error("a certificate with the same key is published")
	}
	p.certificate = certify(t, newKey(t))
	p.step(t.Context())
	if after, _ := p.published(); after.PublicKey == before.PublicKey {
		t.Error("a certificate with another key is not published")
	}
	p.address.Leads = true
	p.step(t.Context())
	if after, _ := p.published(); !after.Leads {
		t.Error("it leads, and that is not published")
	}
}

func TestDeletesTheLeaseWhenTheSchedulerStops(t *testing.T) {
	p := newPublication(t)
	abandoned := func(name string, annotations map[string]string, age time.Duration) {
		lease := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
			Spec: coordinationv1.LeaseSpec{
				LeaseDurationSeconds: ptr.To[int32](40), RenewTime: &metav1.MicroTime{Time: p.clock.Now().Add(-age)},
			},
		}
		if _, err := p.leases.Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	address := map[string]string{schedulerapi.AddressAnnotation: "{}"}
	abandoned("gone", address, 2*time.Hour)
	abandoned("away", address, 10*time.Minute)
	abandoned("other", nil, 2*time.Hour)

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.run(ctx)
	}()
	for !p.clock.HasWaiters() { // the timer starts before the first step
		time.Sleep(time.Millisecond)
	}
	cancel()
	<-ended
	list, err := p.leases.List(t.Context(), metav1.ListOptions{})
	var left []string
	for _, lease := range list.Items {
		left = append(left, lease.Name)
	}
	if diff := cmp.Diff([]string{"away", "other"}, left); diff != "" || err != nil {
		t.Errorf("leases that are left, %v (-want +got):\n%s", err, diff)
	}
}
