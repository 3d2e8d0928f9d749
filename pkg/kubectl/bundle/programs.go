// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/documents"
	"github.com/kubedevice/kubedevice/pkg/kubectl/cluster"
)

// The names of the containers in which KubeDevice's programs run, in the namespaces systems.
const (
	scheduler = "kube-scheduler"
	kubecri   = "kubecri"
)

// metricsPort is where a scheduler serves its metrics by default.
const metricsPort = "10259"

// program is a container of a pod with one of KubeDevice's programs.
type program struct {
	container string
	pod       *corev1.Pod // with the fields that may be in a bundle
	versions  []string    // in its metrics and its logs
}

// findPrograms finds the programs that run in pods.
func (c *collector) findPrograms(ctx context.Context) error {
	var failed []error
	for _, namespace := range systems {
		err := c.reader.Each(ctx, metav1.ListOptions{},
			func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				return c.clients.Core.Pods(namespace).List(ctx, options)
			},
			func(object runtime.Object) { c.programs = append(c.programs, c.programsOf(object.(*corev1.Pod))...) })
		if err != nil {
			failed = append(failed, cluster.Explain(err, "list", "pods", namespace))
		}
	}
	if len(failed) == len(systems) {
		return errors.Join(failed...)
	}
	for _, err := range failed {
		c.miss("some logs and metrics", "%v", err)
	}
	slices.SortStableFunc(c.programs, func(a, b *program) int {
		return rank(a.container) - rank(b.container)
	})
	if len(c.programs) > maxPods {
		c.miss("logs and metrics of pods", "a report has those of %d, of %d: name nodes with --node",
			maxPods, len(c.programs))
		c.programs = c.programs[:maxPods]
	}
	c.missServices()
	if c.NoLogs {
		c.miss("logs", "--no-logs leaves them out")
	}
	return nil
}

// programsOf returns those of a pod.
func (c *collector) programsOf(source *corev1.Pod) (found []*program) {
	onNode := len(c.Nodes) == 0 || slices.Contains(c.Nodes, source.Spec.NodeName)
	for _, at := range source.Spec.Containers {
		if at.Name == scheduler || at.Name == kubecri && onNode {
			found = append(found, &program{container: at.Name, pod: pod(source)})
		}
	}
	return found
}

// rank puts schedulers first.
func rank(container string) int {
	if container == scheduler {
		return 0
	}
	return 1
}

// findNeighbours notes which schedulers share a node with pods that have devices.
func (c *collector) findNeighbours() {
	for _, p := range c.programs {
		node := p.pod.Spec.NodeName
		i := slices.IndexFunc(c.pods, func(source *corev1.Pod) bool {
			ended := source.Status.Phase == corev1.PodSucceeded || source.Status.Phase == corev1.PodFailed
			return source.Spec.NodeName == node && !ended &&
				deviceinfo.MayAllocate(source.Annotations[deviceinfo.Annotation])
		})
		if p.container == scheduler && node != "" && i >= 0 {
			c.findings = append(c.findings, fmt.Sprintf("scheduler %s/%s shares node %s with pods that have devices, "+
				"such as %s/%s: a process that breaks out of one has its key for seals; run it on control planes "+
				"("+documents.URL+"deploy/second-scheduler.md)", p.pod.Namespace, p.pod.Name, node,
				c.pods[i].Namespace, c.pods[i].Name))
		}
	}
}

// missServices notes which program runs in no pod.
func (c *collector) missServices() {
	for _, name := range []string{scheduler, kubecri} {
		if !slices.ContainsFunc(c.programs, func(p *program) bool { return p.container == name }) {
			c.miss(name, "no pod of the namespaces %s has a container %s: where it runs as a service of a machine, "+
				"\"%[2]s --version\" and \"journalctl -u %[2]s\" there show its version and its log",
				strings.Join(systems, " and "), name)
		}
	}
}

func (p *program) metricsFile() string { return path.Join("metrics", p.pod.Name+".txt") }

func (c *collector) readMetrics(ctx context.Context, p *program) error {
	text, err := stream(ctx, c.clients.Core.Pods(p.pod.Namespace).ProxyGet("https", p.pod.Name, metricsPort, "metrics",
		nil), maxMetrics)
	if err != nil {
		return fmt.Errorf("%w; it needs the right that \"kubectl auth can-i get pods --subresource=proxy -n %s\" "+
			"shows, and a scheduler that listens on the pod's address at port %s and shows its metrics to everybody",
			err, p.pod.Namespace, metricsPort)
	}
	p.findVersion(text)
	c.addText(p.metricsFile(), "metrics of "+p.String(), text, maxMetrics)
	return nil
}

// logs returns which logs a program has: the one before it was started again is the previous one.
func (p *program) logs(none bool) (previous []bool) {
	restarted := slices.ContainsFunc(p.pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.Name == p.container && s.LastTerminationState.Terminated != nil
	})
	switch {
	case none:
		return nil
	case restarted:
		return []bool{false, true}
	default:
		return []bool{false}
	}
}

func (p *program) logFile(previous bool) string {
	ending := ".log"
	if previous {
		ending = ".previous.log"
	}
	return path.Join("logs", p.pod.Name+"."+p.container+ending)
}

func (c *collector) readLog(ctx context.Context, p *program, previous bool) error {
	text, err := stream(ctx, c.clients.Core.Pods(p.pod.Namespace).GetLogs(p.pod.Name, &corev1.PodLogOptions{
		Container: p.container, Previous: previous, SinceSeconds: ptr.To(max(1, int64(c.Since.Seconds()))),
		TailLines: ptr.To[int64](maxLines), LimitBytes: ptr.To[int64](maxLog + 1), // one more shows that there is more
	}), maxLog)
	if err != nil {
		return cluster.Explain(err, "get", "pods --subresource=log", p.pod.Namespace)
	}
	p.findVersion(text)
	c.addText(p.logFile(previous), "log of "+p.String(), text, maxLog)
	return nil
}

// stream reads a text, and one byte more than limit if there is more.
func stream(ctx context.Context, from rest.ResponseWrapper, limit int64) (string, error) {
	body, err := from.Stream(ctx)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(body, limit+1))
	if closed := body.Close(); err == nil {
		err = closed
	}
	return string(text), err
}

func (p *program) String() string {
	return fmt.Sprintf("container %s of pod %s on node %s", p.container, p.pod.Name, p.pod.Spec.NodeName)
}

// version finds what a program says of its version: in its metrics, and in the first line of the
// scheduler's log.
var version = regexp.MustCompile(
	`(?m)^kubernetes_build_info\{.*git_version="([^"]+)"|"Starting Kubernetes Scheduler" version="([^"]+)"`)

func (p *program) findVersion(text string) {
	for _, match := range version.FindAllStringSubmatch(text, -1) {
		if found := match[1] + match[2]; !slices.Contains(p.versions, found) {
			p.versions = append(p.versions, found)
		}
	}
}
