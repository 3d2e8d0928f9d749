// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolments

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/node/enrolment"
	"github.com/kubedevice/kubedevice/test/kube"
	"github.com/kubedevice/kubedevice/test/vendors"
)

const (
	// stepTimeout is how long a step may take that should take seconds: on a busy machine, and
	// while the kubelet is killed again and again. It is longer than kubecri waits for anything, so
	// that kubecri says what it waits for.
	stepTimeout = 12 * time.Minute
	// attempts is how often an enrolment is tried.
	attempts = 20
	// briefPods is how many pods come and go on a node at the same time.
	briefPods = 2
)

// site is a node and what happens on it.
type site struct {
	run    *run
	node   *Node
	plugin *plugin

	mu     sync.Mutex
	random *rand.Rand
	serial int
	phase  string // what is going on, for people
}

// The phases.
const (
	alone    = "with the kubelet alone"
	enrols   = "while it is enrolled"
	enrolled = "when it was enrolled"
	leaves   = "while it leaves"
)

func (s *site) phaseNow() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.phase
}

func (s *site) enter(phase string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase = phase
}

func (r *run) newSite(node *Node, random *rand.Rand) (*site, error) {
	dir := filepath.Join(node.dir, "hardware")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	plugin, err := newPlugin(context.Background(), node, dir)
	return &site{run: r, node: node, plugin: plugin, random: random, phase: alone}, err
}

// seconds returns a random number of seconds.
func (s *site) seconds(least, most float64) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return least + s.random.Float64()*(most-least)
}

func (s *site) sleep(ctx context.Context, least, most float64) error {
	select {
	case <-time.After(time.Duration(s.seconds(least, most) * float64(time.Second))):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// name returns a name for a pod that none has had.
func (s *site) name(kind string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serial++
	return fmt.Sprintf("%s-%s-%d", s.node.Name, kind, s.serial)
}

// live enrols the node and has it leave, while pods come and go, until no round is left.
func (s *site) live(ctx context.Context) (err error) {
	if err := s.node.Begin(ctx); err != nil {
		return err
	}
	if err := s.awaitGPUs(ctx, false); err != nil {
		return err
	}
	background, stop := context.WithCancel(ctx)
	var others sync.WaitGroup
	defer others.Wait()
	defer stop()
	for range briefPods {
		others.Go(func() { s.comeAndGo(background) })
	}
	if s.run.options.Kills {
		others.Go(func() { s.kill(background) })
	}
	for {
		round, ok := s.run.next()
		if !ok {
			return nil
		}
		began := time.Now()
		if err := s.round(ctx); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		s.run.note(func(result *Result) { result.Rounds++ })
		fmt.Fprintf(s.run.out, "round %d on %s: %.0f s\n", round, s.node.Name, time.Since(began).Seconds())
	}
}

// round enrols the node, and has it leave.
func (s *site) round(ctx context.Context) error {
	before, err := s.node.Files()
	if err != nil {
		return err
	}
	steady, err := s.runPod(ctx, "steady", idle)
	if err != nil {
		return err
	}
	restarting, err := s.runPod(ctx, "restarting", restarting(s.seconds(3, 15)))
	if err != nil {
		return err
	}
	s.enter(enrols)
	if err := errors.Join(s.cordon(ctx, true), s.change(ctx, "enrol"), s.awaitGPUs(ctx, true),
		s.cordon(ctx, false)); err != nil {
		return err
	}
	s.enter(enrolled)
	ours, err := s.runPod(ctx, "ours", idle)
	if err != nil {
		return err
	}
	if err := errors.Join(s.sleep(ctx, 2, 5), s.checkSteady(ctx, steady), s.checkSteady(ctx, ours)); err != nil {
		return err
	}
	s.run.auditor.MayEnd(string(ours.UID)) // it is evicted
	s.enter(leaves)
	if err := errors.Join(s.cordon(ctx, true), s.change(ctx, "leave", "--drain"), s.awaitGPUs(ctx, false),
		s.cordon(ctx, false)); err != nil {
		return err
	}
	s.enter(alone)
	after, err := s.node.Files()
	if err != nil {
		return err
	}
	if diff := cmp.Diff(before, after); diff != "" {
		s.run.note(func(r *Result) {
			r.ChangedFiles = append(r.ChangedFiles, fmt.Sprintf("%s (-before +after): %s", s.node.Name, diff))
		})
	}
	return errors.Join(s.checkSteady(ctx, steady), s.delete(ctx, steady), s.delete(ctx, restarting))
}

// change runs kubecri enrol or leave until the node is as it was to be. It may be killed at any
// moment.
func (s *site) change(ctx context.Context, verb string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	log, err := os.OpenFile(filepath.Join(s.node.logs(), verb+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // for people
	var last string
	for range attempts {
		if s.run.options.Kills && s.seconds(0, 1) < 0.3 {
			if err := s.killed(ctx, log, verb, args...); err != nil {
				return err
			}
		}
		report, err := s.node.Report(ctx, log, verb, args...)
		if err != nil {
			return err
		}
		fmt.Fprintf(log, "%s %s\n", report.Outcome, report.Reason)
		switch report.Outcome {
		case enrolment.Done, enrolment.Unchanged:
			return nil
		case enrolment.Stuck:
			// The way back failed; kubecri leave goes on with it, and then it is tried again.
			if verb == "enrol" {
				if err := s.change(ctx, "leave", "--drain"); err != nil {
					return err
				}
			}
		}
		last = string(report.Outcome) + ": " + report.Reason
		s.run.note(func(r *Result) { r.Again++ })
		if err := s.sleep(ctx, 1, 2); err != nil {
			return err
		}
	}
	return fmt.Errorf("kubecri %s was tried %d times: %s", verb, attempts, last)
}

// killed runs kubecri enrol or leave, and kills it at a random time.
func (s *site) killed(ctx context.Context, log io.Writer, verb string, args ...string) error {
	command := s.node.Kubecri(verb, args...)
	command.Stdout, command.Stderr = log, log
	process, err := s.node.Sandbox().Start(command)
	if err != nil {
		return err
	}
	select {
	case <-process.Done():
		return nil
	case <-time.After(time.Duration(s.seconds(0, 4) * float64(time.Second))):
	case <-ctx.Done():
	}
	s.run.note(func(r *Result) { r.Kills[verb]++ })
	err = process.Signal(syscall.SIGKILL)
	<-process.Done()
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	return err
}

// kill kills the node's programs at random times until ctx is done.
func (s *site) kill(ctx context.Context) {
	for s.sleep(ctx, 3, 12) == nil {
		name := "kubelet"
		if s.seconds(0, 1) < 0.5 {
			name = "kubecri"
		}
		if err := s.node.Systemctl(ctx, "kill", name+".service"); err == nil {
			s.run.note(func(r *Result) { r.Kills[name]++ })
		}
	}
}

// comeAndGo has one brief pod after the other on the node until ctx is done.
func (s *site) comeAndGo(ctx context.Context) {
	for s.sleep(ctx, 0.5, 2) == nil {
		pod := newPod(s.run.namespace, s.name("brief"), s.node.Name, brief(s.seconds(1, 6)))
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		pod, err := s.run.cluster.Client.CreatePod(ctx, pod)
		if err != nil {
			continue // the API server is there; ctx is done
		}
		s.run.auditor.MayEnd(string(pod.UID))
		s.run.note(func(r *Result) { r.Pods++ })
		//nolint:errcheck // one that never ends holds its place, until ctx is done
		s.run.cluster.Client.AwaitPod(ctx, pod, "to end", func(pod *corev1.Pod) bool {
			return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed ||
				pod.DeletionTimestamp != nil
		})
		s.delete(ctx, pod) //nolint:errcheck // ctx is done
	}
}

// runPod runs a pod that goes on. One that the kubelet fails is noted, and another one made.
func (s *site) runPod(ctx context.Context, kind, script string) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	for {
		pod := newPod(s.run.namespace, s.name(kind), s.node.Name, script)
		pod.Spec.Volumes = []corev1.Volume{{Name: "state", VolumeSource: corev1.VolumeSource{
			EmptyDir: &corev1.EmptyDirVolumeSource{},
		}}}
		pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "state", MountPath: "/state"}}
		pod, err := s.run.cluster.Client.CreatePod(ctx, pod)
		if err != nil {
			return nil, err
		}
		if kind == "restarting" {
			s.run.auditor.MayEnd(string(pod.UID))
		}
		s.run.note(func(r *Result) { r.Pods++ })
		pod, err = s.run.cluster.Client.AwaitPod(ctx, pod, "to be ready or to fail", func(pod *corev1.Pod) bool {
			return kube.Ready(pod) || pod.Status.Phase == corev1.PodFailed
		})
		if err != nil || pod.Status.Phase != corev1.PodFailed {
			return pod, err
		}
		if err := s.delete(ctx, pod); err != nil {
			return nil, err
		}
	}
}

// checkSteady notes a pod that is not as it was when it became ready.
func (s *site) checkSteady(ctx context.Context, before *corev1.Pod) error {
	now, err := s.run.cluster.Client.CoreV1().Pods(before.Namespace).Get(ctx, before.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	is, was := now.Status.ContainerStatuses[0], before.Status.ContainerStatuses[0]
	if is.ContainerID != was.ContainerID || is.RestartCount != was.RestartCount ||
		now.Status.Phase != corev1.PodRunning {
		s.run.note(func(r *Result) {
			r.EndedContainers = append(r.EndedContainers, fmt.Sprintf("pod %s is %s, restarted %d times", now.Name,
				now.Status.Phase, is.RestartCount))
		})
	}
	return nil
}

// delete deletes a pod and waits until it is gone.
func (s *site) delete(ctx context.Context, pod *corev1.Pod) error {
	s.run.auditor.MayEnd(string(pod.UID))
	err := s.run.cluster.Client.DeletePod(ctx, pod)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// cordon is what the guide says to do around a move of the plugin.
func (s *site) cordon(ctx context.Context, cordoned bool) error {
	_, err := s.run.cluster.Client.CoreV1().Nodes().Patch(ctx, s.node.Name, types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, cordoned), metav1.PatchOptions{})
	return err
}

// awaitGPUs waits until all GPUs are allocatable on the node, and are exact devices or a mere
// count.
func (s *site) awaitGPUs(ctx context.Context, exact bool) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	_, err := s.run.cluster.Client.AwaitNode(ctx, s.node.Name, fmt.Sprintf("to offer its GPUs (exact: %t)", exact),
		func(node *corev1.Node) bool {
			offered := node.Status.Allocatable[gpus]
			return offered.Value() == vendors.GPUs && (exactGPUs(node) == vendors.GPUs) == exact
		})
	return err
}

// exactGPUs is how many GPUs are allocatable as exact devices.
func exactGPUs(node *corev1.Node) (count int64) {
	info, err := deviceinfo.DecodeNode(node.Annotations[deviceinfo.Annotation])
	if err != nil {
		return 0 // it publishes nothing
	}
	for name, allocatable := range info.Allocatable {
		if d, ok := kubeletdevice.Parse(name); ok && corev1.ResourceName(d.Resource) == gpus {
			count += allocatable
		}
	}
	return count
}
