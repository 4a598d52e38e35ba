// A host tries up to six addresses, with six probes each; an address in use is kept if no reply to a probe arrives.
dtmc
const double USED = 0.6;
const double LOST = 0.5;
module host
  at : [0..3] init 0; // 0 chooses, 1 probes an address in use, 2 keeps one in use, 3 keeps a free one, or gives up
  probes : [0..6] init 0;
  tries : [0..6] init 0;
  [] at=0 & tries<6 -> USED : (at'=1) & (tries'=tries+1) + 1-USED : (at'=3) & (tries'=0);
  [] at=0 & tries=6 -> (at'=3) & (tries'=0);
  [] at=1 & probes<6 -> LOST : (probes'=probes+1) + 1-LOST : (at'=0) & (probes'=0);
  [] at=1 & probes=6 -> (at'=2) & (probes'=0) & (tries'=0);
  [] at>=2 -> true;
endmodule
label "goal" = at=2;
label "avoid" = at=3;
