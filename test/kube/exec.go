// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"

	"github.com/kubedevice/kubedevice/test/await"
)

// Exec runs a command in a container, as kubectl exec does, and returns what it prints. What it
// prints as errors is part of the error.
func (c *Client) Exec(ctx context.Context, pod *corev1.Pod, container string, command ...string) (string, error) {
	request := c.CoreV1().RESTClient().Get().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).
		SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: container, Command: command, Stdout: true, Stderr: true},
			scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(c.Config, http.MethodGet, request.URL().String())
	if err != nil {
		return "", fmt.Errorf("exec in pod %s: %w", pod.Name, err)
	}
	var stdout, stderr bytes.Buffer
	if err := executor.StreamWithContext(ctx,
		remotecommand.StreamOptions{Stdout: &stdout, Stderr: &stderr}); err != nil {
		return stdout.String(), fmt.Errorf("exec %s in pod %s: %w: %s", strings.Join(command, " "), pod.Name, err,
			bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}

// Forward makes a port of a pod reachable on this machine, as kubectl port-forward does, until ctx
// ends. It returns the address.
func (c *Client) Forward(ctx context.Context, pod *corev1.Pod, port int) (string, error) {
	transport, upgrader, err := spdy.RoundTripperFor(c.Config)
	if err != nil {
		return "", fmt.Errorf("forward port %d of pod %s: %w", port, pod.Name, err)
	}
	url := c.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).
		SubResource("portforward").URL()
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, url)
	ready := make(chan struct{})
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{fmt.Sprintf(":%d", port)},
		ctx.Done(), ready, io.Discard, io.Discard)
	if err != nil {
		return "", fmt.Errorf("forward port %d of pod %s: %w", port, pod.Name, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- forwarder.ForwardPorts() }()
	select {
	case err := <-ended:
		return "", fmt.Errorf("forward port %d of pod %s: %w", port, pod.Name, errors.Join(err, ctx.Err()))
	case <-ready:
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		return "", fmt.Errorf("forward port %d of pod %s: %w", port, pod.Name, err)
	}
	return fmt.Sprintf("127.0.0.1:%d", ports[0].Local), nil
}

// RestartContainer ends the process of a pod's only container and waits until the pod is ready with
// a new one.
func (c *Client) RestartContainer(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	before := pod.Status.ContainerStatuses[0]
	if err := c.EndContainer(ctx, pod); err != nil {
		return nil, err
	}
	return c.AwaitPod(ctx, pod, "to run in a new container", func(now *corev1.Pod) bool {
		return Ready(now) && now.Status.ContainerStatuses[0].ContainerID != before.ContainerID
	})
}

// EndContainer ends the process of a pod's first container.
func (c *Client) EndContainer(ctx context.Context, pod *corev1.Pod) error {
	// The command may die with the container that it ends, and so report anything. It has not begun
	// where the kubelet does not reach the runtime, as just after a restart of kubecri.
	what := "the kubelet of pod " + pod.Name + " to reach the container runtime"
	return await.Until(ctx, what, func(ctx context.Context) (bool, error) {
		_, err := c.Exec(ctx, pod, pod.Spec.Containers[0].Name, "kill", "1")
		return err == nil || !strings.Contains(err.Error(), "code = Unavailable"), nil
	})
}
