// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package seals

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kubedevice/kubedevice/pkg/seal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// key returns the same key for the same number.
func key(number byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(append(make([]byte, ed25519.SeedSize-1), number))
}

func keyID(number byte) string { return seal.KeyID(key(number).Public().(ed25519.PublicKey)) }

// certificates returns the certificates of keys, in PEM.
func certificates(t *testing.T, numbers ...byte) string {
	t.Helper()
	var all []*x509.Certificate
	for _, number := range numbers {
		certificate, err := seal.NewCertificate(key(number), time.Unix(1767225600, 0))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, certificate)
	}
	return string(seal.EncodeCertificates(all))
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// await waits until the keys are those with the numbers, and the check says what is given.
func await(t *testing.T, k *Keys, says string, numbers ...byte) {
	t.Helper()
	want := []string{}
	for _, number := range numbers {
		want = append(want, keyID(number))
	}
	slices.Sort(want)
	limit := time.Now().Add(20 * time.Second)
	for {
		verifier, changed, err := k.Verifier()
		got := []string{}
		if err == nil {
			got = verifier.KeyIDs()
		}
		problem := ""
		if check := k.Check(); check != nil {
			problem = check.Error()
		}
		if slices.Equal(got, want) && strings.Contains(problem, says) && (problem == "") == (says == "") {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("keys %q and %q; want %q and %q", got, problem, want, says)
		}
		select {
		case <-changed:
		case <-time.After(10 * time.Millisecond): // what is wrong changes without the keys
		}
	}
}

// background runs f until the test ends, or the returned function is called.
func background(t *testing.T, f func(context.Context)) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{}))
	var running sync.WaitGroup
	running.Go(func() { f(ctx) })
	stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	return stop
}

func TestTheFileIsReadAgainAndKeepsItsKeysWhileItCannotBe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "certificates.pem")
	clock := clocktesting.NewFakeClock(time.Now())
	k := NewKeys(t.Context(), Options{Certificates: path, Clock: clock})
	if _, _, err := k.Verifier(); err == nil || !strings.Contains(err.Error(), path) {
		t.Fatalf("without the file: %v", err)
	}
	background(t, k.Run)
	step := func() {
		for !clock.HasWaiters() {
			time.Sleep(time.Millisecond)
		}
		clock.Step(seal.PollInterval)
	}
	for _, s := range []struct {
		content, says string
		keys          []byte
	}{
		{certificates(t, 1), "", []byte{1}},
		{certificates(t, 2, 1), "", []byte{1, 2}},
		{"nothing of use", "--seal-certificates", []byte{1, 2}},
		{certificates(t, 2), "", []byte{2}},
	} {
		write(t, path, s.content)
		step()
		await(t, k, s.says, s.keys...)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	step()
	await(t, k, "no such file", 2)
}

func bundle(name, text string) *certificatesv1.ClusterTrustBundle {
	return &certificatesv1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: certificatesv1.ClusterTrustBundleSpec{TrustBundle: text},
	}
}

func TestTheTrustBundleIsFollowedAndOutlivesTheAPIServer(t *testing.T) {
	options := Options{TrustBundle: "seals", Cache: filepath.Join(t.TempDir(), "sealkeys")}
	client := fake.NewClientset()
	k := NewKeys(t.Context(), options)
	await(t, k, "has not answered yet")
	stop := background(t, func(ctx context.Context) { k.WatchTrustBundle(ctx, client) })
	await(t, k, "does not exist; create it")
	bundles := client.CertificatesV1().ClusterTrustBundles()
	update := func(text string) {
		t.Helper()
		if _, err := bundles.Update(t.Context(), bundle("seals", text), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := bundles.Create(t.Context(), bundle("seals", certificates(t, 1)), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, k, "", 1)
	update(certificates(t, 1, 2))
	await(t, k, "", 1, 2)
	verifier, _, _ := k.Verifier()
	update("nothing of use")
	await(t, k, `ClusterTrustBundle "seals"`, 1, 2)
	update(certificates(t, 1, 2))
	await(t, k, "", 1, 2)
	if again, _, _ := k.Verifier(); again != verifier {
		t.Error("the same certificates make another verifier")
	}
	if err := bundles.Delete(t.Context(), "seals", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, k, "does not exist", 1, 2)
	stop()

	// The next start, without an API server.
	await(t, NewKeys(t.Context(), options), "has not answered yet", 1, 2)
	options.TrustBundle = "other"
	await(t, NewKeys(t.Context(), options), "has not answered yet")
}

func TestAnAPIServerWithoutTrustBundlesSaysWhatToUse(t *testing.T) {
	group := schema.GroupResource{Group: "certificates.k8s.io", Resource: "clustertrustbundles"}
	for name, test := range map[string]struct {
		err    error
		served string // of the group
		says   string
	}{
		"not served": {apierrors.NewNotFound(group, ""), "", "use --seal-certificates in its place"},
		"not served, and so not allowed": {
			apierrors.NewForbidden(group, "seals", errors.New("no")), "certificatesigningrequests",
			"use --seal-certificates in its place",
		},
		"not allowed": {
			apierrors.NewForbidden(group, "seals", errors.New("no")), "clustertrustbundles",
			"the role kubedevice-kubecri",
		},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			client.Resources = []*metav1.APIResourceList{{
				GroupVersion: "certificates.k8s.io/v1", APIResources: []metav1.APIResource{{Name: test.served}},
			}}
			refuse := func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, test.err }
			client.PrependReactor("list", "clustertrustbundles", refuse)
			client.PrependWatchReactor("clustertrustbundles",
				func(clienttesting.Action) (bool, watch.Interface, error) { return true, nil, test.err })
			path := filepath.Join(t.TempDir(), "certificates.pem")
			write(t, path, certificates(t, 3))
			k := NewKeys(t.Context(), Options{Certificates: path, TrustBundle: "seals", Cache: path + ".cache"})
			background(t, func(ctx context.Context) { k.WatchTrustBundle(ctx, client) })
			await(t, k, test.says, 3)
		})
	}
}

func TestAFileAndATrustBundleAddUp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "certificates.pem")
	write(t, path, certificates(t, 1))
	client := fake.NewClientset(bundle("seals", certificates(t, 2)), bundle("others", certificates(t, 3)))
	k := NewKeys(t.Context(), Options{Certificates: path, TrustBundle: "seals", Cache: path + ".cache"})
	background(t, func(ctx context.Context) { k.WatchTrustBundle(ctx, client) })
	await(t, k, "", 1, 2)
}
