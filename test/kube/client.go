// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kube is what tests do with pods: create them, wait for what should become of them, look
// inside. It works with any API server; what runs inside pods needs nodes, of course. Its errors
// report what the pod was doing meanwhile.
package kube

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
)

// Client is a client of an API server, with all the usual calls and those that tests need. It may
// be used from several goroutines.
type Client struct {
	kubernetes.Interface
	// Config is how the server is reached, and as whom.
	Config *rest.Config
}

// NewClient returns a client that is not slowed down, as clients are by default.
func NewClient(config *rest.Config) (*Client, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &Client{Interface: client, Config: config}, nil
}

// As returns a client that acts as another user, whom c must be allowed to impersonate.
func (c *Client) As(user string, groups ...string) (*Client, error) {
	config := rest.CopyConfig(c.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	return NewClient(config)
}

// SetRequests makes the annotation of a pod request devices for its container main. requests are
// the members of a JSON object, such as "gpu/a/cards":1.
func SetRequests(pod *corev1.Pod, requests string) {
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, deviceinfo.Annotation,
		`{"runningcontainer":{"main":{"requests":{`+requests+`}}}}`)
}

// NewPod returns a pod in the default namespace with one container, named main, that runs a
// command. It ends at once when it is deleted.
func NewPod(name, image string, command ...string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault},
		Spec: corev1.PodSpec{
			Containers:                    []corev1.Container{{Name: "main", Image: image, Command: command}},
			TerminationGracePeriodSeconds: ptr.To[int64](0),
		},
	}
}

// CreatePod creates a pod.
func (c *Client) CreatePod(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	created, err := c.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create pod %s: %w", pod.Name, err)
	}
	return created, nil
}

// RunPod creates a pod and waits until it is ready.
func (c *Client) RunPod(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	created, err := c.CreatePod(ctx, pod)
	if err != nil {
		return nil, err
	}
	return c.AwaitPod(ctx, created, "to be ready", Ready)
}

// DeletePod deletes a pod and waits until it is gone.
func (c *Client) DeletePod(ctx context.Context, pod *corev1.Pod) error {
	if err := c.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete pod %s: %w", pod.Name, err)
	}
	return c.awaitGone(ctx, pod)
}

// Logs returns what a container has printed so far.
func (c *Client) Logs(ctx context.Context, pod *corev1.Pod, container string) (string, error) {
	content, err := c.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Container: container}).
		DoRaw(ctx)
	if err != nil {
		return "", fmt.Errorf("read the logs of container %s of pod %s: %w", container, pod.Name, err)
	}
	return string(content), nil
}
