// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package readapi

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
)

const (
	// publishInterval is how often the publisher checks for changes.
	publishInterval = 2 * time.Second
	// withdrawTimeout is the timeout of withdrawing the Lease at the end.
	withdrawTimeout = 2 * time.Second
	// abandonedAfter is the age at which the publisher deletes a Lease that another scheduler
	// stopped renewing.
	abandonedAfter = time.Hour
)

// addressed is a scheduler with an address. *identity implements it.
type addressed interface {
	// address returns the current address, without the public key.
	address() schedulerapi.Address
}

// certificate is a certificate that may be renewed.
type certificate interface {
	// CurrentCertKeyContent returns the current certificate and its key, both in PEM.
	CurrentCertKeyContent() (certificate, key []byte)
}

// publisher publishes in a Lease the address of the API and the scheduler that serves it.
type publisher struct {
	leases coordinationclient.LeaseInterface
	name   string
	self   addressed
	// certificate is the server's certificate, in PEM.
	certificate certificate
	clock       clock.WithTicker

	published schedulerapi.Address
	renewed   time.Time
	failed    bool // and this is logged
}

// run publishes until ctx ends, and then withdraws the Lease. It publishes changes, such as a new
// certificate, within publishInterval.
func (p *publisher) run(ctx context.Context) {
	if err := p.removeAbandoned(ctx); err != nil {
		klog.FromContext(ctx).V(2).Info("Cannot remove the leases of schedulers that are gone",
			logkey.Reason, err.Error())
	}
	ticker := p.clock.NewTicker(publishInterval)
	defer ticker.Stop()
	for {
		p.step(ctx)
		select {
		case <-ctx.Done():
			p.withdraw(ctx)
			return
		case <-ticker.C():
		}
	}
}

// step publishes changes, and renews the lease when it is time.
func (p *publisher) step(ctx context.Context) {
	err := p.publish(ctx)
	switch logger := klog.FromContext(ctx); {
	case err == nil && p.failed:
		logger.Info("The address of the scheduler's read API is published again", logkey.Lease, p.name)
	case err != nil && !p.failed && ctx.Err() == nil:
		logger.Error(err, "The address of the scheduler's read API is not published, so clients do not find it; "+
			"apply deploy/rbac of this release", logkey.Lease, klog.KRef(schedulerapi.Namespace, p.name))
	}
	p.failed = err != nil
}

func (p *publisher) publish(ctx context.Context) error {
	address := p.self.address()
	text, _ := p.certificate.CurrentCertKeyContent()
	var err error
	if address.PublicKey, err = fingerprint(text); err != nil {
		return err
	}
	now := p.clock.Now()
	if address == p.published && now.Sub(p.renewed) < schedulerapi.RenewPeriod {
		return nil
	}
	value, err := json.Marshal(address)
	if err != nil {
		return err
	}
	lease, err := p.leases.Get(ctx, p.name, metav1.GetOptions{})
	absent := apierrors.IsNotFound(err)
	if err != nil && !absent {
		return err
	}
	if absent {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: p.name}}
	}
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, schedulerapi.AddressAnnotation, string(value))
	lease.Spec.HolderIdentity = &p.name
	lease.Spec.LeaseDurationSeconds = ptr.To(int32(schedulerapi.LeaseDuration.Seconds()))
	lease.Spec.RenewTime = &metav1.MicroTime{Time: now}
	if absent {
		_, err = p.leases.Create(ctx, lease, metav1.CreateOptions{})
	} else {
		_, err = p.leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	if err == nil {
		p.published, p.renewed = address, now
	}
	return err
}

// withdraw deletes the lease. If that fails, the lease expires.
func (p *publisher) withdraw(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawTimeout)
	defer cancel()
	_ = p.leases.Delete(ctx, p.name, metav1.DeleteOptions{}) // it expires
}

// removeAbandoned deletes the leases of schedulers that will not come back: a scheduler in a pod of
// a Deployment has a new name each time.
func (p *publisher) removeAbandoned(ctx context.Context) error {
	list, err := p.leases.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var failed []error
	for i := range list.Items {
		lease := &list.Items[i]
		_, ours := lease.Annotations[schedulerapi.AddressAnnotation]
		if ours && schedulerapi.Expired(lease, p.clock.Now().Add(-abandonedAfter)) {
			failed = append(failed, p.leases.Delete(ctx, lease.Name, metav1.DeleteOptions{
				Preconditions: &metav1.Preconditions{ResourceVersion: &lease.ResourceVersion},
			}))
		}
	}
	return errors.Join(failed...)
}

// fingerprint returns the fingerprint of the first certificate in PEM.
func fingerprint(text []byte) (string, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return "", errors.New("the serving certificate is not in PEM")
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return "", fmt.Errorf("read the serving certificate: %w", err)
	}
	return schedulerapi.Fingerprint(certificate), nil
}
