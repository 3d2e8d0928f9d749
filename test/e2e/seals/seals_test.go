// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package seals

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/seal"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/observe"
)

// timeout is how long the story may take; it has to wait for files to be read again.
const timeout = 5 * time.Minute

// bundleName is the name of the ClusterTrustBundle.
const bundleName = "kubedevice-seals"

// story is the cluster with what the test knows of it.
type story struct {
	*testing.T
	ctx       context.Context
	node      *cluster.Node
	namespace string
	observer  *observe.Observer
	devices   map[string]string // by pod
}

func TestAClusterComesToSealsWhilePodsHoldDevices(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	observer, err := observe.New(ctx, shared)
	if err != nil {
		t.Fatal(err)
	}
	s := &story{T: t, ctx: ctx, node: shared.Nodes[0], namespace: clustertest.Namespace(t, shared.Client),
		observer: observer, devices: map[string]string{}}

	// Without seals.
	s.runPod("old")
	s.awaitHolders()

	// The node only reads the seals at first, and refuses no pod. It has its keys from the API
	// server.
	s.sealKeys("create")
	s.publish()
	s.restartKubecri("sealTrustBundle: " + bundleName + "\nsealMode: warn\n")
	s.awaitHolders("old")
	s.runPod("warned")
	s.awaitEvent("warned", "DevicesNotSealed", "the allocation has no seal")
	clustertest.AwaitMetric(s.ctx, s, s.node, `kubecri_seals_total{result="missing"} 1`)
	s.awaitHolders("old", "warned")

	// The scheduler seals, and the node enforces.
	s.handOver()
	s.must(shared.Scheduler.Terminate(ctx))
	s.must(shared.NewScheduler("sealing-scheduler", schedulerPort, sealing).Start())
	s.restartKubecri("sealTrustBundle: " + bundleName + "\nsealMode: enforce\n")
	s.runPod("sealed")
	s.awaitHolders("old", "warned")
	s.forge()
	s.restartContainer("old")
	s.restartContainer("sealed")

	// The key is replaced: first both are valid, then the new one alone.
	s.sealKeys("rotate")
	s.publish()
	clustertest.AwaitMetric(s.ctx, s, s.node, "kubecri_seal_keys 2")
	s.handOver()
	s.awaitNewKey()
	s.runPod("rotated")
	s.restartContainer("sealed")
	s.awaitHolders("old", "warned")
	s.sealKeys("prune")
	s.publish()
	s.awaitHolders("old", "sealed", "warned")
	s.handOver()
	s.restartContainer("sealed")
	s.restartContainer("rotated")

	// The holders are forgotten with their pods.
	for _, name := range []string{"old", "sealed", "warned"} {
		clustertest.DeletePod(ctx, t, shared.Client, s.pod(name))
	}
	s.awaitHolders()
	s.restartContainer("rotated")
}

func (s *story) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// sealKeys runs one of the commands for the directory of keys, and returns what it prints.
func (s *story) sealKeys(verb string, flags ...string) string {
	s.Helper()
	printed, err := s.node.RunKubecri(s.ctx, append([]string{"seal-keys", verb, keyDir()}, flags...)...)
	s.must(err)
	return printed
}

// publish makes the trust bundle have the certificates in the directory of keys.
func (s *story) publish() {
	s.Helper()
	apply := shared.KubectlCommand(s.ctx, "apply", "--filename=-")
	apply.Stdin = strings.NewReader(s.sealKeys("list", "--output=yaml", "--public-only", "--trust-bundle="+bundleName))
	if printed, err := apply.CombinedOutput(); err != nil {
		s.Fatalf("%v: %s", err, printed)
	}
}

// handOver gives the scheduler the private keys in the directory of keys.
func (s *story) handOver() {
	s.Helper()
	text, err := os.ReadFile(filepath.Join(keyDir(), "private.pem"))
	s.must(err)
	s.must(os.WriteFile(keyFile()+".next", text, 0o600))
	s.must(os.Rename(keyFile()+".next", keyFile()))
}

// restartKubecri restarts kubecri with these settings in its configuration file.
func (s *story) restartKubecri(settings string) {
	s.Helper()
	s.must(configure(settings))
	s.must(s.node.Kubecri.Restart(s.ctx))
}

func gpuPod(namespace, name string) *corev1.Pod {
	return clustertest.IdlePod(namespace, name, map[corev1.ResourceName]int64{observe.Resource: 1})
}

func (s *story) pod(name string) *corev1.Pod {
	s.Helper()
	pod, err := shared.Client.CoreV1().Pods(s.namespace).Get(s.ctx, name, metav1.GetOptions{})
	s.must(err)
	return pod
}

// runPod runs a pod with one device, which no other pod has.
func (s *story) runPod(name string) {
	s.Helper()
	pod := clustertest.RunPod(s.ctx, s, shared.Client, gpuPod(s.namespace, name))
	device := s.see(pod)
	for other, taken := range s.devices {
		if taken == device {
			s.Errorf("the pods %s and %s both have %s", name, other, device)
		}
	}
	s.devices[name] = device
}

// restartContainer ends the container of a pod, and expects that the next one has the same device.
func (s *story) restartContainer(name string) {
	s.Helper()
	pod := clustertest.RestartContainer(s.ctx, s, shared.Client, s.pod(name))
	if device := s.see(pod); device != s.devices[name] {
		s.Errorf("the pod %s has %s after a restart, and had %s", name, device, s.devices[name])
	}
}

// see returns the one device that a pod sees, which must be the one that was chosen for it.
func (s *story) see(pod *corev1.Pod) string {
	s.Helper()
	var seen *observe.Observation
	clustertest.Await(s.ctx, s, "the kubelet to reach the container runtime", func() bool {
		var err error
		seen, err = s.observer.Observe(s.ctx, pod, "main")
		if err != nil && !strings.Contains(err.Error(), "code = Unavailable") {
			s.Fatal(err)
		}
		return err == nil
	})
	if err := seen.Agree(); err != nil || len(seen.Visible) != 1 {
		s.Fatalf("%s sees %q, want one device (%v)", seen, seen.Visible, err)
	}
	return seen.Visible[0]
}

// forge creates pods on the node with an allocation of their own making: a copy of a pod's that the
// scheduler sealed, without that seal and with it.
func (s *story) forge() {
	s.Helper()
	from := s.pod("sealed")
	for name, test := range map[string]struct{ seal, says string }{
		"forged": {"", "the allocation has no seal; delete the pod and create it again"},
		"copied": {from.Annotations[seal.Annotation], "the seal is for pod"},
	} {
		pod := gpuPod(s.namespace, name)
		pod.Spec.NodeName = s.node.Name
		pod.Annotations = map[string]string{deviceinfo.Annotation: strings.ReplaceAll(
			from.Annotations[deviceinfo.Annotation], `"sealed"`, `"`+name+`"`)}
		if test.seal != "" {
			pod.Annotations[seal.Annotation] = test.seal
		}
		pod = clustertest.CreatePod(s.ctx, s, shared.Client, pod)
		s.awaitEvent(name, "DevicesRefused", test.says)
		s.awaitEvent(name, "DevicesRefused", `pod "`+s.namespace+"/"+name+`"`)
		clustertest.AwaitPod(s.ctx, s, shared.Client, pod, "to be refused", func(pod *corev1.Pod) bool {
			return slices.ContainsFunc(pod.Status.ContainerStatuses, func(status corev1.ContainerStatus) bool {
				return status.State.Waiting != nil && status.State.Waiting.Reason == "CreateContainerError"
			})
		})
		clustertest.DeletePod(s.ctx, s, shared.Client, pod)
	}
}

// awaitHolders waits until the node reports exactly these pods, sorted by name.
func (s *story) awaitHolders(want ...string) {
	s.Helper()
	clustertest.AwaitSuccess(s.ctx, s, "the node to report the holders "+strings.Join(want, ", "), func() error {
		node, err := shared.Client.CoreV1().Nodes().Get(s.ctx, s.node.Name, metav1.GetOptions{})
		s.must(err)
		value, there := node.Annotations[deviceinfo.HoldersAnnotation]
		holders, err := deviceinfo.DecodeHolders(value)
		s.must(err)
		var got []string
		for _, holder := range holders {
			got = append(got, holder.Name)
		}
		if !slices.Equal(got, want) || there != (len(want) > 0) {
			return fmt.Errorf("it reports %s", value)
		}
		return nil
	})
}

// awaitNewKey waits until the scheduler seals with the first of the keys.
func (s *story) awaitNewKey() {
	s.Helper()
	text, err := os.ReadFile(filepath.Join(keyDir(), "certificates.pem"))
	s.must(err)
	certificates, err := seal.ParseCertificates(text)
	s.must(err)
	verifier := seal.NewVerifier(seal.CertificateKeys(certificates)[0])
	clustertest.Await(s.ctx, s, "the scheduler to use its new key", func() bool {
		pod := clustertest.RunPod(s.ctx, s, shared.Client, gpuPod(s.namespace, "probe"))
		_, err := verifier.Open(pod.Annotations[seal.Annotation])
		clustertest.DeletePod(s.ctx, s, shared.Client, pod)
		return err == nil
	})
}

func (s *story) awaitEvent(pod, reason, text string) {
	s.Helper()
	clustertest.Await(s.ctx, s, "an event "+reason+" on pod "+pod+" that says "+text, func() bool {
		events, err := shared.Client.PodEvents(s.ctx, s.pod(pod))
		s.must(err)
		for _, event := range events {
			if event.Reason == reason && strings.Contains(event.Message, text) {
				return true
			}
		}
		return false
	})
}
