// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"net"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
)

// random returns content that no two tests share.
func random(t *testing.T, size int) []byte {
	t.Helper()
	content := make([]byte, size)
	if _, err := rand.Read(content); err != nil {
		t.Fatal(err)
	}
	return content
}

func TestExecCarriesInputOutputErrorsAndExitCode(t *testing.T) {
	compare(t, func(ctx context.Context, t *testing.T, node *cluster.Node) []outcome {
		pod := clustertest.RunPod(ctx, t, shared.Client, newPod(t, node, clustertest.Idle...))

		sent := random(t, 4<<20)
		echoed := kubectl(ctx, t, pod, bytes.NewReader(sent), "exec", "--stdin", pod.Name, "--", "cat")
		if echoed.Stdout != string(sent) || echoed.Code != 0 {
			t.Errorf("%d bytes of input came back as %d bytes, exit code %d: %s", len(sent), len(echoed.Stdout),
				echoed.Code, echoed.Stderr)
		}
		failed := kubectl(ctx, t, pod, nil, "exec", pod.Name, "--", "sh", "-c", "echo out; echo broken >&2; exit 42")
		if diff := cmp.Diff(outcome{Stdout: "out\n", Stderr: "broken\ncommand terminated with exit code 42\n",
			Code: 42}, failed); diff != "" {
			t.Errorf("a command that fails (-want +got):\n%s", diff)
		}
		return []outcome{
			kubectl(ctx, t, pod, nil, "exec", pod.Name, "--", "/no/such/program").inGeneral(),
			kubectl(ctx, t, pod, nil, "exec", pod.Name, "--container=other", "--", "true").inGeneral(),
		}
	})
}

func TestExecWithATerminalHasItsSizeAndItsKeys(t *testing.T) {
	onBothNodes(t, func(ctx context.Context, t *testing.T, node *cluster.Node) {
		pod := clustertest.RunPod(ctx, t, shared.Client, newPod(t, node, clustertest.Idle...))
		screen := openTerminal(t, 50, 132)
		command := shared.KubectlCommand(ctx, "--namespace="+pod.Namespace, "exec", "--stdin", "--tty", pod.Name,
			"--", "sh")
		screen.start(t, command)

		// kubectl sends the size when the shell already runs
		screen.write(t, "until stty size | grep -x '50 132'; do sleep 0.1; done\n")
		screen.awaitLine(t, "50 132")
		screen.resize(t, 24, 80)
		screen.write(t, "until stty size | grep -x '24 80'; do sleep 0.1; done\n")
		screen.awaitLine(t, "24 80")
		// Ctrl-C ends this one, also if sleep does not run yet.
		screen.write(t, "sh -c 'echo asleep; exec sleep 86400'\n")
		screen.awaitLine(t, "asleep")
		screen.write(t, "\x03exit 7\n")

		command.Wait() //nolint:errcheck // the exit code says it
		if code := command.ProcessState.ExitCode(); code != 7 {
			t.Errorf("kubectl ends with exit code %d, want that of the shell, 7", code)
		}
	})
}

func TestAttachSpeaksWithTheContainersOwnProcess(t *testing.T) {
	onBothNodes(t, func(ctx context.Context, t *testing.T, node *cluster.Node) {
		pod := newPod(t, node, "sh", "-c", `while read line; do echo "heard $line"; done; echo the end`)
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		pod.Spec.Containers[0].Stdin, pod.Spec.Containers[0].StdinOnce = true, true
		pod = clustertest.RunPod(ctx, t, shared.Client, pod)

		attached := kubectl(ctx, t, pod, strings.NewReader("one\ntwo\n"), "attach", "--stdin", "--quiet", pod.Name)

		if attached.Stdout != "heard one\nheard two\nthe end\n" || attached.Code != 0 {
			t.Errorf("attach: %+v", attached)
		}
		clustertest.AwaitPod(ctx, t, shared.Client, pod, "to succeed", kube.Succeeded)
		if logs := kubectl(ctx, t, pod, nil, "logs", pod.Name); logs.Stdout != attached.Stdout {
			t.Errorf("the logs say %q, attach said %q", logs.Stdout, attached.Stdout)
		}
	})
}

var forwarding = regexp.MustCompile(`Forwarding from (127\.0\.0\.1:\d+) -> 7`)

func TestPortForwardCarriesMuchBothWaysAtOnce(t *testing.T) {
	onBothNodes(t, func(ctx context.Context, t *testing.T, node *cluster.Node) {
		pod := clustertest.RunPod(ctx, t, shared.Client, newPod(t, node, "nc", "-ll", "-p", "7", "-e", "cat"))
		clustertest.Await(ctx, t, "the pod to listen", func() bool {
			_, err := shared.Client.Exec(ctx, pod, "main", "sh", "-c", "nc 127.0.0.1 7 </dev/null")
			return err == nil
		})
		line := follow(ctx, t, pod, "port-forward", "--address=127.0.0.1", "pod/"+pod.Name, ":7").awaitLine(t,
			"Forwarding")
		found := forwarding.FindStringSubmatch(line)
		if found == nil {
			t.Fatalf("kubectl says %q, want where it forwards from", line)
		}

		var connections errgroup.Group
		for range 2 {
			sent := random(t, 16<<20)
			connections.Go(func() error {
				conn, err := new(net.Dialer).DialContext(ctx, "tcp", found[1])
				if err != nil {
					return err
				}
				got, err := echo(ctx, conn, sent)
				if err == nil && !bytes.Equal(got, sent) {
					t.Error("what came back is not what was sent")
				}
				return err
			})
		}
		if err := connections.Wait(); err != nil {
			t.Error(err)
		}
	})
}

// echo sends content over a connection, reads as much from it meanwhile, and closes it.
func echo(ctx context.Context, conn net.Conn, content []byte) ([]byte, error) {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	var sending errgroup.Group
	sending.Go(func() error {
		_, err := conn.Write(content)
		return err
	})
	got := make([]byte, len(content))
	if _, err := io.ReadFull(conn, got); err != nil {
		return nil, err
	}
	return got, sending.Wait()
}
