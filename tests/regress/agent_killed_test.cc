// SPDX-License-Identifier: MIT
// It went wrong: a killed agent (kill -9) left its trainer's ranks running, 6 times of 130 on a
// loaded machine. mpirun had SIGTERM as its parent-death signal; the kernel sends that once for
// every thread of the agent that dies while the child is its, and mpirun takes a second SIGTERM
// within five seconds as "leave at once" and leaves its ranks behind.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <sstream>

#include "rig.h"

namespace flextrain::agent {
namespace {

// Stands for mpirun and a rank: notes its own id, its child's and every SIGTERM.
constexpr const char* kLauncher = R"(#!/usr/bin/perl
use strict;
use File::Basename;
my $state = dirname(__FILE__);
sub note { my ($name, $text) = @_; open(my $f, '>>', "$state/$name"); print $f "$text\n"; close $f; }
my $rank = fork();
if (!$rank) {
  setpgrp(0, 0);  # as Open MPI's ranks
  sleep 1 while 1;
}
$SIG{TERM} = sub { note('terms', 'TERM') };
note('pids', "$$ $rank");
select(undef, undef, undef, 0.01) while -e "$state/stubborn" || !-e "$state/terms";
my $end = time + 2;  # a second signal may come
select(undef, undef, undef, 0.01) while time < $end;
kill 'KILL', $rank;
)";

// Kills an agent in the middle of training; what its launcher saw.
void kill_one(bool stubborn) {
  Rig rig;
  FakeController controller;
  rig.write("launcher", kLauncher);
  ::chmod(rig.file("launcher").c_str(), 0755);
  if (stubborn) rig.write("stubborn", "");
  rig.start_base(controller.port(), {"--mpirun", rig.file("launcher")});
  ASSERT_TRUE(wait_until([&] { return rig.read("pids").ends_with("\n"); }));
  pid_t launcher = 0, rank = 0;
  std::istringstream(rig.read("pids")) >> launcher >> rank;
  ASSERT_GT(rank, 0);
  ASSERT_TRUE(wait_until([&] { return !controller.registrations().empty(); }));
  rig.signal(SIGKILL);
  EXPECT_EQ(rig.wait_exit(), 128 + SIGKILL);
  EXPECT_TRUE(wait_until([&] { return gone(launcher) && gone(rank); }))
      << "launcher gone: " << gone(launcher) << ", rank: " << gone(rank);
  EXPECT_EQ(rig.read("terms"), "TERM\n") << "a second one makes mpirun leave its ranks behind";
}

TEST(AgentKilled, ItsLauncherIsToldToEndOnce) {
  for (int i = 0; i < 5 && !::testing::Test::HasFailure(); ++i) kill_one(/*stubborn=*/false);
}

TEST(AgentKilled, ALauncherThatDoesNotEndIsKilledWithItsRanks) { kill_one(/*stubborn=*/true); }

}  // namespace
}  // namespace flextrain::agent
