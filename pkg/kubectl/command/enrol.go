// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubedevice/kubedevice/deploy"
	"github.com/kubedevice/kubedevice/pkg/kubectl/cluster"
)

const (
	// enrolTimeout is how long kubecri may take, the node's pull of an image included.
	enrolTimeout = 10 * time.Minute
	// enrolInterval is how often it is looked whether it is done.
	enrolInterval = 500 * time.Millisecond
)

// enrolOptions are the arguments of kubectl device enrol and leave.
type enrolOptions struct {
	env     *environment
	verb    string
	image   string
	program string
	print   bool
}

func enrolCommand(env *environment) *cobra.Command {
	o := &enrolOptions{env: env, verb: "enrol"}
	command := o.command("Take over a node: put kubecri before its container runtime", `  # What would be done?
  kubectl device enrol gpu-7 -- --dry-run

  # Do it, after all schedulers that may lead have been replaced, which the node cannot see
  kubectl device enrol gpu-7 -- --schedulers-replaced`)
	command.Aliases = []string{"enroll"}
	return command
}

func leaveCommand(env *environment) *cobra.Command {
	return (&enrolOptions{env: env, verb: "leave"}).command("Give a node back: take kubecri out again",
		`  # Back to the container runtime alone
  kubectl device leave gpu-7`)
}

func (o *enrolOptions) command(short, example string) *cobra.Command {
	command := &cobra.Command{
		Use:   o.verb + " NODE [-- FLAGS OF kubecri " + o.verb + "]",
		Short: short,
		Long: fmt.Sprintf(`%s, as kubecri %s does on the node itself.

A Job in kube-system runs it on the node, privileged and in the machine's own namespaces. You need the
right to create Jobs there, and the node needs the program kubecri. The command prints the report and
deletes the Job. The exit status is that of kubecri %[2]s: 0 for success, 2 for a refusal that changed
nothing, 3 if a step failed and the node is as before, 4 if the way back failed, too.`, short, o.verb),
		Example: example,
		Args: func(command *cobra.Command, args []string) error {
			if dash := command.ArgsLenAtDash(); dash > 1 || dash < 0 && len(args) != 1 || len(args) == 0 || dash == 0 {
				return &usageError{errors.New("name one node; flags of kubecri follow after --"), command.CommandPath()}
			}
			return nil
		},
		ValidArgsFunction: completeAllNodes(o.env),
		RunE: func(command *cobra.Command, args []string) error {
			return o.run(command.Context(), args[0], args[1:])
		},
	}
	command.Flags().StringVar(&o.image, "image", "", "Image of the Job, in place of busybox. It needs nsenter.")
	command.Flags().StringVar(&o.program, "program", "", "Where kubecri is installed, if not in /usr/local/bin.")
	command.Flags().BoolVar(&o.print, "print", false, "Print the Job in place of creating it.")
	return command
}

// job returns the Job of deploy/jobs for a node, with further flags.
func (o *enrolOptions) job(node string, flags []string) (*batchv1.Job, error) {
	text, err := deploy.Job(o.verb)
	if err != nil {
		return nil, err
	}
	job := &batchv1.Job{}
	if err := yaml.UnmarshalStrict(text, job); err != nil {
		return nil, err
	}
	job.Name = jobName(strings.TrimSuffix(job.Name, "NODE"), node)
	pod := &job.Spec.Template.Spec
	pod.NodeName = node
	if container := &pod.Containers[0]; len(flags) > 0 {
		container.Args = append(container.Args[:2:2], flags...)
	}
	if o.image != "" {
		pod.Containers[0].Image = o.image
	}
	if o.program != "" {
		pod.Containers[0].Args[0] = o.program
	}
	return job, nil
}

// jobName returns the name of a node's Job, which is a label of the Job's pod, too: of a node whose
// name is too long for one, it has the beginning, and a hash of all of it.
func jobName(prefix, node string) string {
	name := prefix + node
	if len(name) <= validation.LabelValueMaxLength {
		return name
	}
	sum := sha256.Sum256([]byte(node))
	hash := hex.EncodeToString(sum[:4])
	begin := strings.TrimRight(name[:validation.LabelValueMaxLength-len(hash)-1], "-.")
	return begin + "-" + hash
}

func (o *enrolOptions) run(ctx context.Context, node string, flags []string) error {
	job, err := o.job(node, flags)
	if err != nil {
		return err
	}
	if o.print {
		text, err := yaml.Marshal(job)
		if err != nil {
			return err
		}
		_, err = o.env.Out.Write(text)
		return err
	}
	core, _, err := o.env.client()
	if err != nil {
		return err
	}
	batch, err := o.env.batch()
	if err != nil {
		return err
	}
	jobs := batch.Jobs(job.Namespace)
	if _, err := core.Nodes().Get(ctx, node, metav1.GetOptions{}); err != nil {
		return cluster.Explain(err, "get", "nodes", "")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, enrolTimeout, fmt.Errorf("kubecri %s took longer than %v", o.verb,
		enrolTimeout))
	defer cancel()
	_, err = jobs.Create(ctx, job, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("%w: it is at work, or was left there: see \"kubectl logs -n %s job/%s\", and delete it", err,
			job.Namespace, job.Name)
	} else if err != nil {
		return cluster.Explain(err, "create", "jobs.batch", job.Namespace)
	}
	status, err := o.await(ctx, core.Pods(job.Namespace), job)
	switch { // after an error the Job stays: what it does must not be cut off
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("interrupted; Job %s/%s goes on: see \"kubectl logs -n %[1]s -f job/%[2]s\", and delete it "+
			"when it has ended", job.Namespace, job.Name)
	case err != nil:
		return fmt.Errorf("%w; see \"kubectl logs -n %s job/%s\"", err, job.Namespace, job.Name)
	}
	background := metav1.DeletePropagationBackground
	if err := jobs.Delete(ctx, job.Name, metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
		fmt.Fprintf(o.env.ErrOut, "Warning: Job %s/%s stays: %v\n", job.Namespace, job.Name, err)
	}
	if status != 0 {
		return &exitStatus{status: status}
	}
	return nil
}

// await waits until the pod of a Job has ended, prints what it said, and returns its exit status.
func (o *enrolOptions) await(
	ctx context.Context, pods corev1client.PodInterface, job *batchv1.Job,
) (status int, err error) {
	for {
		list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + job.Name})
		switch {
		case apierrors.IsForbidden(err):
			return 0, cluster.Explain(err, "list", "pods", job.Namespace)
		case err != nil: // on a control plane, the API server may be away for a moment
			list = &corev1.PodList{}
		}
		for i := range list.Items {
			pod := &list.Items[i]
			for _, container := range pod.Status.ContainerStatuses {
				if ended := container.State.Terminated; ended != nil {
					return int(ended.ExitCode), o.printLog(ctx, pods, pod)
				}
			}
			if pod.Status.Phase == corev1.PodFailed {
				return 0, fmt.Errorf("pod %s/%s failed before kubecri ran: %s", pod.Namespace, pod.Name,
					pod.Status.Message)
			}
		}
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-time.After(enrolInterval):
		}
	}
}

func (o *enrolOptions) printLog(ctx context.Context, pods corev1client.PodInterface, pod *corev1.Pod) error {
	log, err := pods.GetLogs(pod.Name, &corev1.PodLogOptions{}).Stream(ctx)
	if err != nil {
		return cluster.Explain(err, "get", "pods --subresource=log", pod.Namespace)
	}
	defer log.Close()
	_, err = io.Copy(o.env.Out, log)
	return err
}
