// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubedevice/kubedevice/test/await"
	"github.com/kubedevice/kubedevice/test/binaries"
	"github.com/kubedevice/kubedevice/test/checkout"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/kube"
	"github.com/kubedevice/kubedevice/test/observe"
)

// Limits allow for a busy machine: a quiet one starts in ten seconds, and no scene takes more
// than two.
const (
	startTimeout = 3 * time.Minute
	sceneTimeout = 2 * time.Minute
)

// demo is a demo in progress.
type demo struct {
	out      io.Writer
	client   *kube.Client
	observer *observe.Observer
}

// Run starts a cluster of two nodes, shows every scene on it, and takes it down unless it is to be
// kept. It returns nil only if all that it claims was true. out gets what people read. At the end
// are the commands that show what has happened, with what some of them print: see [Commands].
func Run(ctx context.Context, out io.Writer, keep bool) (err error) {
	options, err := options()
	if err != nil {
		return err
	}
	root, err := checkout.Root()
	if err != nil {
		return err
	}
	if err := binaries.Build(ctx, filepath.Join(root, "test"), options.Programs, out); err != nil {
		return err
	}

	fmt.Fprintln(out,
		"Starting a cluster: etcd, kube-apiserver, our kube-scheduler, 2 nodes with kubelet, our kubecri, containerd "+
			"and runc")
	began := time.Now()
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	started, err := cluster.Start(starting, options)
	if err != nil {
		return err
	}
	defer func() {
		if keep && err == nil {
			return
		}
		fmt.Fprintln(out, "\nTaking the cluster down")
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
		defer cancel()
		err = errors.Join(err, started.Stop(stopping))
	}()
	fmt.Fprintf(out, "Ready after %.1f s\n", time.Since(began).Seconds())

	d := &demo{out: out, client: started.Client}
	if err := d.introduce(starting, started); err != nil {
		return err
	}
	for i, scenario := range scenarios {
		fmt.Fprintf(out, "\n%d. %s\n", i+1, scenario.title)
		if err := d.play(ctx, scenario); err != nil {
			return fmt.Errorf("scenario %d, %s: %w", i+1, scenario.title, err)
		}
	}
	return d.conclude(ctx, started, keep)
}

// options are those of the demo's cluster.
func options() (cluster.Options, error) {
	options, err := cluster.Default(2)
	// Not the directory of "make cluster-up": the demo takes no other cluster down.
	options.Dir = filepath.Join(filepath.Dir(options.Dir), "demo")
	options.Scheduler.Args = append(options.Scheduler.Args, cluster.ServesDevices)
	return options, err
}

// introduce waits until the nodes' devices are published, and shows them.
func (d *demo) introduce(ctx context.Context, started *cluster.Cluster) (err error) {
	if d.observer, err = observe.New(ctx, started); err != nil {
		return err
	}
	for _, node := range started.Nodes {
		fmt.Fprintf(d.out, "%s: %d GPUs of 80 GiB, NVLink pairs, two pairs to a socket\n", node.Name,
			len(d.observer.Devices(node.Name)))
	}
	return nil
}

// play creates the scene's pods, shows what both sides say of them, and checks it.
func (d *demo) play(ctx context.Context, s scenario) error {
	ctx, cancel := context.WithTimeout(ctx, sceneTimeout)
	defer cancel()
	var seen []*observe.Observation
	for _, name := range s.pods {
		manifest, err := Pod(name)
		if err != nil {
			return err
		}
		pod, err := d.client.CreatePod(ctx, manifest)
		if err != nil {
			return err
		}
		if s.pending {
			if err := d.showPending(ctx, pod); err != nil {
				return err
			}
			continue
		}
		if pod, err = d.client.AwaitPod(ctx, pod, "to be ready", kube.Ready); err != nil {
			return err
		}
		observation, err := d.observer.Observe(ctx, pod, pod.Spec.Containers[0].Name)
		if err != nil {
			return err
		}
		d.show(observation)
		if err := observation.Agree(); err != nil {
			return err
		}
		seen = append(seen, observation)
	}
	if s.check == nil {
		return nil
	}
	return s.check(seen)
}

// showPending waits for the event with the scheduler's word that the pod fits nowhere, and shows
// it.
func (d *demo) showPending(ctx context.Context, pod *corev1.Pod) error {
	what := "an event of pod " + pod.Name + " that says why it is Pending"
	return await.Until(ctx, what, func(ctx context.Context) (bool, error) {
		events, err := d.client.PodEvents(ctx, pod)
		if err != nil {
			return false, err
		}
		for _, event := range events {
			if event.Reason != "FailedScheduling" {
				continue
			}
			fmt.Fprintf(d.out, "   pod %-10s  Pending: %s\n", pod.Name, event.Message)
			if !strings.Contains(event.Message, "160 GiB") {
				return false, fmt.Errorf("pod %s: its event does not say what is missing", pod.Name)
			}
			return true, nil
		}
		return false, nil
	})
}

func (d *demo) show(s *observe.Observation) {
	list := func(ids []string) string {
		if len(ids) == 0 {
			return "none"
		}
		return strings.Join(ids, " ")
	}
	fmt.Fprintf(d.out, "   pod %-10s  on %s   chosen: %s   container has: %s   refused to it: %s\n",
		s.Pod, s.Node, list(s.Chosen), list(s.Visible), list(s.Refused))
}

// Pod returns the demo's pod of that name, as the demo creates it.
func Pod(name string) (*corev1.Pod, error) {
	text, err := files.ReadFile("pods/" + name + ".yaml")
	if err != nil {
		return nil, err
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{}}
	if err := yaml.UnmarshalStrict(text, pod); err != nil {
		return nil, fmt.Errorf("read pod %s: %w", name, err)
	}
	pod.Namespace = metav1.NamespaceDefault
	return pod, nil
}
