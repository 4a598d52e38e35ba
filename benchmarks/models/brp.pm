// Bounded retransmission: 16 parts of a file, each sent at most three times; frames and their receipts may be lost.
dtmc
const int PARTS = 16;
const int AGAIN = 2;
module sender
  at : [0..4] init 0; // 0 sends, 1 waits for the receipt, 2 has waited too long, 3 is done, 4 has given up
  part : [1..PARTS] init 1;
  again : [0..AGAIN] init 0;
  [] at=0 -> 0.95 : (at'=1) + 0.05 : (at'=2);
  [] at=1 & part<PARTS -> 0.93 : (at'=0) & (part'=part+1) & (again'=0) + 0.07 : (at'=2);
  [] at=1 & part=PARTS -> 0.93 : (at'=3) + 0.07 : (at'=2);
  [] at=2 & again<AGAIN -> (at'=0) & (again'=again+1);
  [] at=2 & again=AGAIN -> (at'=4);
  [] at>=3 -> true;
endmodule
label "goal" = at=4;
label "avoid" = at=3;
