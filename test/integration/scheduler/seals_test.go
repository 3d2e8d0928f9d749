// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/seal"
	"github.com/kubedevice/kubedevice/test/await"
	"github.com/kubedevice/kubedevice/test/kube"
)

// keyFile is a file of keys, each made from a number.
type keyFile struct {
	*testing.T
	path string
}

func newKeyFile(t *testing.T, numbers ...int) *keyFile {
	k := &keyFile{t, filepath.Join(t.TempDir(), "private.pem")}
	k.write(numbers...)
	return k
}

func sealKey(number int) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(rune('a'+number)), ed25519.SeedSize)))
}

func (k *keyFile) write(numbers ...int) {
	k.Helper()
	keys := make([]ed25519.PrivateKey, len(numbers))
	for i, number := range numbers {
		keys[i] = sealKey(number)
	}
	text, err := seal.EncodePrivateKeys(keys)
	if err == nil {
		err = os.WriteFile(k.path, text, 0o600)
	}
	if err != nil {
		k.Fatal(err)
	}
}

// start starts a scheduler with the keys, which its configuration names, and more flags.
func (k *keyFile) start(more ...string) *process {
	k.Helper()
	return startSchedulerWith(k.T, more, fmt.Sprintf(
		"profiles: [{pluginConfig: [{name: KubeDevice, args: {sealKey: %q}}]}]\n", k.path))
}

// forge creates a pod that is bound already, with these annotations, as only the scheduler
// should. It has no limits: those count on its node as for any Kubernetes scheduler.
func (c *cluster) forge(name, node string, annotations map[string]string) *corev1.Pod {
	c.Helper()
	pod := newPod(name, 0)
	pod.Spec.NodeName, pod.Annotations = node, annotations
	return c.create(pod)
}

// report makes a node report that a pod holds what this allocation says.
func (c *cluster) report(node string, pod *corev1.Pod, allocation string) {
	c.Helper()
	info, err := deviceinfo.DecodePod(allocation)
	if err != nil {
		c.Fatal(err)
	}
	holder := deviceinfo.HolderOf(pod.UID, pod.Namespace, pod.Name, info)
	value, err := deviceinfo.EncodeHolders([]deviceinfo.Holder{holder})
	if err != nil {
		c.Fatal(err)
	}
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		current, err := c.CoreV1().Nodes().Get(c.Context(), node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		current.Annotations[deviceinfo.HoldersAnnotation] = value
		_, err = c.CoreV1().Nodes().Update(c.Context(), current, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		c.Fatal(err)
	}
}

func TestAForgedAllocationHoldsNothingWhereSealsAreEnforced(t *testing.T) {
	for mode, wantBound := range map[string]bool{"off": false, "warn": false, "enforce": true} {
		t.Run(mode, func(t *testing.T) {
			c := newCluster(t)
			c.node("n1", 1)
			forged := c.forge("forged", "n1", map[string]string{deviceinfo.Annotation: allocated("forged", "n1", 0)})
			newKeyFile(t, 1).start("--device-seal-mode=" + mode)
			pod := c.create(newPod("honest", 1))
			if !wantBound {
				c.await(pod, "to find the GPU taken", kube.Unschedulable)
			} else if got := devices(c.await(pod, "to be bound", kube.Scheduled)); got != "n1-gpu-0" {
				t.Errorf("the pod was allocated %s", got)
			}
			c.delete(forged)
		})
	}
}

func TestASealIsWorthNothingOnAnotherPod(t *testing.T) {
	c := newCluster(t)
	c.node("n1", 2)
	keys := newKeyFile(t, 1)
	keys.start()
	victim := c.schedule(newPod("victim", 1))
	if victim.Annotations[seal.Annotation] == "" {
		t.Fatal("the pod has no seal")
	}
	stolen := map[string]string{}
	for _, key := range []string{deviceinfo.Annotation, seal.Annotation} {
		stolen[key] = victim.Annotations[key]
	}
	c.forge("copy", "n1", stolen)
	c.delete(victim)
	// A pod of the same name, which is not the same pod.
	c.forge("victim", "n1", stolen)
	if got := devices(c.schedule(newPod("honest", 2))); got != "n1-gpu-0 n1-gpu-1" {
		t.Errorf("the pod was allocated %q", got)
	}
}

func TestSealedPodsKeepTheirDevicesWhileKeysAndSchedulersChange(t *testing.T) {
	c := newCluster(t)
	c.node("n1", 4)
	keys := newKeyFile(t, 1)
	scheduler := keys.start()
	c.schedule(newPod("first", 1))
	scheduler.kill()
	scheduler = keys.start()
	c.schedule(newPod("second", 1))
	c.check()

	keys.write(2, 1)
	scheduler.awaitLog("The keys of seals have changed")
	third := c.schedule(newPod("third", 1))
	c.check()
	verifier := seal.NewVerifier(sealKey(2).Public().(ed25519.PublicKey))
	if _, err := verifier.Open(third.Annotations[seal.Annotation]); err != nil {
		t.Errorf("the pod is not sealed with the new key: %v", err)
	}

	if err := os.WriteFile(keys.path, []byte("no keys"), 0o600); err != nil {
		t.Fatal(err)
	}
	scheduler.awaitLog("The keys of seals cannot be read again")
	c.schedule(newPod("fourth", 1))
	c.check()
	fifth := c.create(newPod("fifth", 1))
	c.await(fifth, "to find no GPU free", kube.Unschedulable)
}

func TestAPodOfALostKeyHoldsWhatItsNodeReports(t *testing.T) {
	for name, reported := range map[string]bool{"reported": true, "not reported": false} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.node("n1", 2)
			keys := newKeyFile(t, 1)
			scheduler := keys.start()
			old := c.schedule(newPod("old", 1))
			scheduler.kill()

			if reported { // as nodes do that have the new certificate alone
				c.report("n1", old, old.Annotations[deviceinfo.Annotation])
			}
			keys.write(2)
			keys.start()
			next := c.schedule(newPod("next", 1))
			if same := devices(next) == devices(old); same == reported {
				t.Errorf("the old pod has %s, and the next one was allocated %s", devices(old), devices(next))
			}
		})
	}
}

func TestAnUnsealedPodIsReportedInAnEvent(t *testing.T) {
	c := newCluster(t)
	c.node("n1", 2)
	forged := c.forge("forged", "n1", map[string]string{deviceinfo.Annotation: allocated("forged", "n1", 0)})
	newKeyFile(t, 1).start("--device-seal-mode=warn")
	c.schedule(newPod("honest", 1))
	c.until("the event UnsealedAllocation of pod forged", func(ctx context.Context) (bool, error) {
		list, err := c.EventsV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		return slices.ContainsFunc(list.Items, func(event eventsv1.Event) bool {
			return event.Reason == "UnsealedAllocation" && event.Regarding.UID == types.UID(forged.UID)
		}), nil
	})
}

func TestASchedulerWithoutItsKeysDoesNotStart(t *testing.T) {
	for name, test := range map[string]struct {
		arguments []string
		want      string
	}{
		"no file": {[]string{"--device-seal-key=/nowhere/private.pem"}, "/nowhere/private.pem"},
		"no keys": {[]string{"--device-seal-mode=enforce"}, "there are no keys"},
	} {
		t.Run(name, func(t *testing.T) {
			scheduler := startSchedulerWith(t, test.arguments)
			select {
			case <-scheduler.ended:
			case <-time.After(timeout):
				t.Fatal("it runs")
			}
			if text, err := os.ReadFile(scheduler.log); err != nil || !strings.Contains(string(text), test.want) {
				t.Errorf("the log lacks %q (%v):\n%s", test.want, err, text)
			}
		})
	}
}

// The real API server takes our certificates in a ClusterTrustBundle.
func TestTheAPIServerTakesCertificatesOfSealKeys(t *testing.T) {
	c := newCluster(t)
	var certificates []*x509.Certificate
	for _, number := range []int{2, 1} {
		certificate, err := seal.NewCertificate(sealKey(number), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		certificates = append(certificates, certificate)
	}
	bundle := &certificatesv1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: "kubedevice-seals"},
		Spec:       certificatesv1.ClusterTrustBundleSpec{TrustBundle: string(seal.EncodeCertificates(certificates))},
	}
	bundles := c.CertificatesV1().ClusterTrustBundles()
	bundle, err := bundles.Create(t.Context(), bundle, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bundles.Delete(context.WithoutCancel(t.Context()), bundle.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	if read, err := seal.ParseCertificates([]byte(bundle.Spec.TrustBundle)); err != nil || len(read) != 2 {
		t.Errorf("%d certificates, %v", len(read), err)
	}
}

// awaitLog waits until the scheduler has logged this.
func (p *process) awaitLog(text string) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), timeout)
	defer cancel()
	what := fmt.Sprintf("the scheduler to log %q", text)
	if err := await.Until(ctx, what, func(context.Context) (bool, error) {
		log, err := os.ReadFile(p.log)
		return strings.Contains(string(log), text), err
	}); err != nil {
		p.Fatal(err)
	}
}
